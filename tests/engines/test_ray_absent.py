"""The engine ray, where its package is not installed or its cluster is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedskew.engines.ray import pool as cluster
from support.command import SMALL, mistake


def test_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    said = mistake(capsys, "run", "fedavg", *SMALL, "--engine", "ray", "--out", tmp_path / "run")
    assert "pip install '.[ray]'" in said and not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["nowhere", "ray://127.0.0.1:10001", "127.0.0.1:none"])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(cluster.ConfigError, match=r"must be HOST:PORT, auto or local; got ") as caught:
        cluster._reached(address)
    assert "\n" not in str(caught.value)


def test_nobody_answers() -> None:
    with pytest.raises(cluster.ConfigError, match=r"there is no Ray cluster at '127.0.0.1:1': "):
        cluster._reached("127.0.0.1:1")
