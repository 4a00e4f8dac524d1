"""The table of datasets: names, options that are values, and the embedded digits."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fedskew.data import DATASETS, load
from fedskew.errors import ConfigError
from support.data_files import fails


def test_a_typing_error_is_answered_with_a_suggestion() -> None:
    fails("cifr10", None, "unknown dataset 'cifr10'; did you mean 'cifar10'", kind=ConfigError)
    with pytest.raises(ConfigError, match="dataset 'mnist' has no option 'normalise'; did you mean 'normalize'"):
        load("mnist", normalise="half")


@pytest.mark.parametrize("name", DATASETS)
def test_every_source_is_a_frozen_value_with_documented_options(name: str) -> None:
    docstring_parser = pytest.importorskip("docstring_parser")
    source = DATASETS[name]
    assert source.name == name and source() == source() and name.split("_")[0] in repr(source()).lower()
    documented = {p.arg_name for p in docstring_parser.parse_from_object(source).params}
    inherited = {p.arg_name for base in source.__mro__[1:-1] for p in docstring_parser.parse_from_object(base).params}
    assert {f.name for f in fields(source)} <= documented | inherited
