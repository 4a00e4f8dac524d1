"""Pictures of a report as plain values. `fedskew.report.drawing` draws them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """Points of a method: joined in curves, single in a scatter. P points."""

    label: str
    place: int  # of the method among the sorted names: its colour and dashes
    x: Floats  # [P]
    y: Floats  # [P]
    low: Floats | None = None  # [P] of the band, or of the whisker of a single point
    high: Floats | None = None


@dataclass(frozen=True)
class Chart:
    """Lines with bands, or single points with whiskers."""

    key: str  # names its file
    title: str
    xlabel: str
    ylabel: str
    lines: tuple[Line, ...]
    told: str  # the same in words, for readers who do not see it
    joined: bool = True
    logarithmic: bool = False  # the horizontal axis
    from_zero: bool = True  # the horizontal axis of joined points
    ticks: tuple[str, ...] = ()  # names of the places 0, 1, ... of the horizontal axis


@dataclass(frozen=True)
class Heat:
    """Cells of shares in [0, 1], or of numbers on a scale; NaN has no colour."""

    key: str
    title: str
    cells: Floats  # [R, C]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    xlabel: str
    ylabel: str
    told: str
    numbers: bool = False  # write each share into its cell
    top: float = 1.0  # value of the darkest cell
    root: bool = False  # colour by the square root: small numbers stay visible


Picture = Chart | Heat
