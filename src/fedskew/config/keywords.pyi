# Written by scripts/typed.py.

from collections.abc import Sequence
from typing import Literal, TypedDict

from torch import nn

from fedskew.data.arrays import Dataset
from fedskew.data.partitioners.base import Partitioner
from fedskew.models import Architecture
from fedskew.records.diagnostics import Diagnostics

class RunOptions(TypedDict, total=False):
    """Options of a run that have no dot in their names."""

    path: str | None
    clients: int | None
    longtail: float | None
    validation: float
    auxiliary: int | None
    local_test: float
    heldout_clients: float
    seed_partition: int | None
    rounds: int
    cohort: int | None
    seed: int
    seed_model: int | None
    seed_clients: int | None
    init_from: str | None
    init_digest: str
    engine: Literal["auto", "sequential", "threaded", "batched", "chained", "debug", "ray", "flower"]
    threads: int
    device: str
    dtype: Literal["float32", "float64", "bfloat16"]
    precision: Literal["float32", "tf32", "bfloat16"]
    deterministic: bool
    memory: Literal["device", "ram"]
    eval_every: int
    personal_every: int
    served: Literal["none", "last", "tail", "every"]
    clients_every: int | None
    keep_own: bool
    scores: Literal["last", "every"]
    recall_at: float
    fit_logits: Literal["none", "last", "tail", "every"]
    average: int
    average_decay: float
    average_models: Literal["auto", "last", "every", "none"]
    checkpoint_every: int
    monitor: Literal["val_accuracy", "val_macro_f1", "val_balanced_accuracy", "val_g_mean", "val_loss"] | None
    patience: int | None
    max_minutes: float | None
    nonfinite: Literal["stop", "drop"]
    secure: Literal["none", "sums"]
    secure_threshold: float
    histogram_epsilon: float | None
    dp: Literal["none", "client", "example"]
    dp_clip: float | None
    dp_noise: float | None
    dp_epsilon: float | None
    dp_delta: float
    ray_address: str | None
    ray_workers: int
    ray_gpus: float
    diagnose: Diagnostics
    epochs: int
    steps: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    clip: float
    server_lr: float
    split_by: str | None
    partition: str | Partitioner
    sampler: str
    selector: str
    pace: str
    weighting: str
    server: str
    local: str
    parts: str
    preset: str

class StudyOptions(TypedDict, total=False):
    """The same in a study; a list of values is a setting each."""

    data: str | Dataset | Sequence[str | Dataset]
    model: str | Architecture | nn.Module | Sequence[str | Architecture | nn.Module]
    path: str | Sequence[str | None] | None
    clients: int | Sequence[int | None] | None
    longtail: float | Sequence[float | None] | None
    validation: float | Sequence[float]
    auxiliary: int | Sequence[int | None] | None
    local_test: float | Sequence[float]
    heldout_clients: float | Sequence[float]
    seed_partition: int | Sequence[int | None] | None
    rounds: int | Sequence[int]
    cohort: int | Sequence[int | None] | None
    seed_model: int | Sequence[int | None] | None
    seed_clients: int | Sequence[int | None] | None
    init_from: str | Sequence[str | None] | None
    init_digest: str | Sequence[str]
    engine: (
        Literal["auto", "sequential", "threaded", "batched", "chained", "debug", "ray", "flower"]
        | Sequence[Literal["auto", "sequential", "threaded", "batched", "chained", "debug", "ray", "flower"]]
    )
    threads: int | Sequence[int]
    device: str | Sequence[str]
    dtype: Literal["float32", "float64", "bfloat16"] | Sequence[Literal["float32", "float64", "bfloat16"]]
    precision: Literal["float32", "tf32", "bfloat16"] | Sequence[Literal["float32", "tf32", "bfloat16"]]
    deterministic: bool | Sequence[bool]
    memory: Literal["device", "ram"] | Sequence[Literal["device", "ram"]]
    eval_every: int | Sequence[int]
    personal_every: int | Sequence[int]
    served: Literal["none", "last", "tail", "every"] | Sequence[Literal["none", "last", "tail", "every"]]
    clients_every: int | Sequence[int | None] | None
    keep_own: bool | Sequence[bool]
    scores: Literal["last", "every"] | Sequence[Literal["last", "every"]]
    recall_at: float | Sequence[float]
    fit_logits: Literal["none", "last", "tail", "every"] | Sequence[Literal["none", "last", "tail", "every"]]
    average: int | Sequence[int]
    average_decay: float | Sequence[float]
    average_models: Literal["auto", "last", "every", "none"] | Sequence[Literal["auto", "last", "every", "none"]]
    checkpoint_every: int | Sequence[int]
    monitor: (
        Literal["val_accuracy", "val_macro_f1", "val_balanced_accuracy", "val_g_mean", "val_loss"]
        | Sequence[Literal["val_accuracy", "val_macro_f1", "val_balanced_accuracy", "val_g_mean", "val_loss"] | None]
        | None
    )
    patience: int | Sequence[int | None] | None
    max_minutes: float | Sequence[float | None] | None
    nonfinite: Literal["stop", "drop"] | Sequence[Literal["stop", "drop"]]
    secure: Literal["none", "sums"] | Sequence[Literal["none", "sums"]]
    secure_threshold: float | Sequence[float]
    histogram_epsilon: float | Sequence[float | None] | None
    dp: Literal["none", "client", "example"] | Sequence[Literal["none", "client", "example"]]
    dp_clip: float | Sequence[float | None] | None
    dp_noise: float | Sequence[float | None] | None
    dp_epsilon: float | Sequence[float | None] | None
    dp_delta: float | Sequence[float]
    ray_address: str | Sequence[str | None] | None
    ray_workers: int | Sequence[int]
    ray_gpus: float | Sequence[float]
    diagnose: Diagnostics | Sequence[Diagnostics]
    epochs: int | Sequence[int]
    steps: int | Sequence[int]
    batch_size: int | Sequence[int]
    lr: float | Sequence[float]
    momentum: float | Sequence[float]
    weight_decay: float | Sequence[float]
    clip: float | Sequence[float]
    server_lr: float | Sequence[float]
    split_by: str | Sequence[str | None] | None
    partition: str | Partitioner | Sequence[str | Partitioner]
    sampler: str | Sequence[str]
    selector: str | Sequence[str]
    pace: str | Sequence[str]
    weighting: str | Sequence[str]
    server: str | Sequence[str]
    local: str | Sequence[str]
    parts: str | Sequence[str]
    preset: str | Sequence[str]
