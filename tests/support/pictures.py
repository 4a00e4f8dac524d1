"""What a view prints, and how large a picture is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console


def printed(view: Any, width: int = 80) -> str:
    """The text of a view, as a terminal of this width shows it."""
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(view)
        return console.export_text()


def size_of(png: Path) -> tuple[int, int]:
    head = png.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
