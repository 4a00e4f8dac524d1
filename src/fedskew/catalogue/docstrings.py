"""What catalogue pages and help texts show of a docstring."""

from __future__ import annotations

import inspect
import re

__all__ = ["prose"]

SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Note|Example|References):$", re.M)


def prose(kind: type) -> str:
    """The docstring of a class up to its first section, such as Raises or Example."""
    return SECTION.split(inspect.cleandoc(kind.__doc__ or ""), maxsplit=1)[0].rstrip()
