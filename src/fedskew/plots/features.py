"""Features of the test rows in the plane, by class."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from fedskew.errors import RecordError, regular
from fedskew.plots import canvas
from fedskew.plots.panels import Shown, legend, panels_of
from fedskew.records import digests

if TYPE_CHECKING:
    from matplotlib.figure import Figure


OWN = re.compile(r"features/round-\d+\.safetensors")


def tsne(runs: list[Shown]) -> Figure:
    """Features of test rows in two dimensions by scikit-learn's t-SNE from a fixed start, coloured by class."""
    from sklearn.manifold import TSNE

    figure, panels = panels_of(1, len(runs), 6.4 if len(runs) < 3 else 4.6)
    for run, axes in zip(runs, np.atleast_1d(panels), strict=True):
        number, row = run.diagnosed("features")[-1]
        x, y = _features(run, row)
        wide = min(30.0, max(2.0, (len(x) - 1) / 3))
        place = TSNE(2, perplexity=wide, init="pca", random_state=0).fit_transform(x)
        classes = np.unique(y)
        colours = canvas.matplotlib().colormaps["tab10" if len(classes) <= 10 else "tab20"]
        for i, c in enumerate(classes):
            name = run.class_names[c] if c < len(run.class_names) else str(c)
            axes.scatter(*place[y == c].T, s=7, color=colours(i % colours.N), label=canvas.entry(name), lw=0)
        axes.set(title=f"{run.label}, round {number}", xticks=[], yticks=[])
        axes.grid(False)
    if len(classes) > 40:
        return figure
    return legend(figure, np.atleast_1d(panels)[0], columns=10, markerscale=3)


def _features(run: Shown, row: dict[str, Any]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Features and labels of a recorded file. A record names a file of its own folder, and no other is opened.

    Raises RecordError where it is not the one that the round wrote.
    """
    name = row["file"]
    if not OWN.fullmatch(name):
        told = f"{name!r} of {run.folder} cannot be read"
        raise RecordError(f"{told}: a record must name features/round-NUMBER.safetensors, a file of its own folder")
    try:
        if "digest" in row and digests.of_file(run.folder / name) != row["digest"]:
            raise RecordError(f"{run.folder / name} was altered after the run wrote it; run it again")
        with safe_open(regular(run.folder / name), framework="np") as file:
            return file.get_tensor("features"), file.get_tensor("labels")
    except (OSError, SafetensorError) as error:
        raise RecordError(f"{run.folder / name} cannot be read: {error}") from None
