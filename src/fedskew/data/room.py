"""What data may make of the memory, known before anything is allocated.

A file becomes at most `RATIO` times its bytes, which is the most that deflate can do, or `ROOM` bytes where that is
more. What is computed from data, such as a one-hot block, takes at most half of the machine's memory.
"""

import math
import os

from fedskew.errors import DataError

RATIO = 1032  # bytes that one byte of deflate can become, at most
ROOM = 1 << 30  # bytes that any file may become
UNKNOWN = 1 << 35  # memory of a machine that does not say


def allowed(size: int) -> int:
    """Bytes that a file of so many bytes may become.

    Example:
        >>> from fedskew.data.room import allowed
        >>> allowed(118_000) == 1 << 30, allowed(10**9)
        (True, 1032000000000)
    """
    return max(RATIO * size, ROOM)


def afford(size: int, what: str, hint: str = "") -> None:
    """Raise DataError for an array of more bytes than half of the machine's memory.

    Args:
        size: Bytes of the array that is about to be made.
        what: Its name in the error message.
        hint: What to do.
    """
    pages = ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
    most = (math.prod(map(os.sysconf, pages)) if hasattr(os, "sysconf") else UNKNOWN) // 2
    if size > most:
        told = f"{what} must fit into half of the memory, {most >> 20:,} MiB; got {size >> 20:,} MiB"
        raise DataError(told + (f"; {hint}" if hint else ""))
