"""Adult and Heart Disease, on small made-up files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedskew.data import load
from fedskew.errors import ConfigError
from support.data_files import fails


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
    with pytest.raises(
        ConfigError, match=r"exclude must name attributes; got 'native_country'; did you mean 'native-country'"
    ):
        load("adult", str(tmp_path), exclude="native_country")
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
