"""Study files that ship with the package."""

from pathlib import Path

__all__ = ["names", "shipped"]


def names() -> tuple[str, ...]:
    """The names of the studies."""
    return tuple(sorted(file.stem for file in Path(__file__).parent.glob("*.toml")))


def shipped(name: str) -> str | None:
    """The file of a study that ships with the package; None where there is none of this name."""
    return str(Path(__file__).parent / f"{name}.toml") if name in names() else None
