"""The Hugging Face hub, and parquet files that are laid out as there."""

from __future__ import annotations

import logging
import warnings

import pytest

import fedskew as fs
from fedskew.data.sources.table import load


def test_the_hub_s_retries_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = pytest.importorskip("datasets")
    loggers = [logging.getLogger(n) for n in ("huggingface_hub.utils._http", "datasets.load", "urllib3.connectionpool")]
    before = logging.getLogger("huggingface_hub").level

    def unreachable(*_: object) -> None:
        for logger in loggers:
            logger.warning("Retrying in 1s [Retry 1/5].")
        warnings.warn("sending unauthenticated requests", stacklevel=1)
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(fs.DataError, match="could not be loaded: no route"):
        load("hub", repo="nobody/nothing")
    assert not caplog.records and capsys.readouterr().err == ""
    assert logging.getLogger("huggingface_hub").level == before
