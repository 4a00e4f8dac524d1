"""What is wrong with the words of ``--track``, and what is said of it, of every command that takes them."""

from __future__ import annotations

MISTAKES = {
    "tracker": (["--track", "tensorbord"], "unknown tracker 'tensorbord'; did you mean 'tensorboard'?"),
    "twice": (
        ["--track", "tensorboard,tensorboard"],
        "--track must name each tracker once; got 'tensorboard,tensorboard'",
    ),
    "another": (
        ["--track", "mlflow"],
        "track must be tensorboard; got 'mlflow'; docs/guide/tracking.md tracks by it in",
    ),
    "folder alone": (["--track.folder", "x"], "--track.folder must go with --track"),
    "no value": (["--track"], "--track must be followed by a value, trackers that follow every round"),
}
