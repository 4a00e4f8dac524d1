# Written by scripts/typed.py.

from typing import Literal, TypedDict

class DataOptions(TypedDict, total=False):
    """Options of datasets; each dataset takes its own."""

    augment: bool | None
    background: Literal["white", "black", "grey"]
    case: Literal["refuse", "keep", "fold"]
    categories: str
    channels: Literal["auto", "first", "last"]
    classes: tuple[str, ...]
    coarse: bool
    colours: Literal["first", "grey", "rgb"]
    columns: str | None
    config: str | None
    crop_padding: Literal["zeros", "reflect"]
    decimal: Literal["", ".", ","]
    encoding: str
    exclude: str
    layout: Literal["auto", "classes", "splits", "clients"]
    least: int
    missing: Literal["refuse", "fill"]
    missing_labels: Literal["refuse", "drop"]
    missing_words: str | None
    named_labels: bool
    normalize: Literal["protocol", "channel", "half", "none"]
    ordinal: str
    pad: int
    relabel: bool
    repo: str
    separator: str
    size: int
    split_by: str | None
    standardise: bool | None
    stride: int
    table: str
    test_split: str | None
    thousands: Literal["", ".", ",", "'", "space"]
    train_split: str
    verify: bool
    x_column: str | None
    y_column: str | None
