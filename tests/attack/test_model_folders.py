"""Folders of models from a stranger: refused in one line, or a model; nothing runs, hangs or fills the memory."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[hf]'")
import transformers

import fedskew as fs
from fedskew.cli.command import SHORT, _message_of
from fedskew.errors import FedskewError
from fedskew.models import HF
from support.attack import FULL, Line, outcome, some, stand
from support.bounds import bounded
from support.command import fedskew
from support.pretrained import FAMILIES, folder_of, skewed

FAMILY = ("bert", "vit", "gpt2", "llama", "resnet") if FULL else ("bert", "vit")
ROOM = 2 << 30  # bytes
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, float("nan"), 1 << 20, 10**9, 10**400, "x", "\x1b[2J", [], [1] * 3, {}, {"a": {"b": 1}},
)  # fmt: skip
MORE = (
    "auto_map", "quantization_config", "fusion_config", "attn_implementation", "transformers_weights", "text_config",
    "configuration_files", "per_layer_config", "num_labels", "id2label", "layer_types", "architectures", "torch_dtype",
)  # fmt: skip
MEMBERS = ("config.json", "model.safetensors", "model.safetensors.index.json", "adapter_config.json")


@cache
def whole(family: str) -> Path:
    """The folder of a model with weights."""
    folder = folder_of(family).parent / f"{family}-whole"
    text = bool(FAMILIES[family].get("vocab_size"))
    auto = transformers.AutoModelForSequenceClassification if text else transformers.AutoModelForImageClassification
    config = transformers.AutoConfig.from_pretrained(folder_of(family))
    config.num_labels, config.pad_token_id = (3, 0) if text else (10, None)
    auto.from_config(config).save_pretrained(folder)
    return folder


def copied(family: str, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    return Path(shutil.copytree(whole(family), place))


def trained(family: str, folder: Path, **options: Any) -> Any:
    """What one round gives, or raises."""
    fed = skewed(bool(FAMILIES[family].get("vocab_size")))
    model = HF(path=str(folder), **options)
    with bounded(ROOM):
        return outcome(lambda: fs.run(fed, fs.methods.fedavg(), model=model, rounds=1, cohort=2, engine="sequential"))


def refused(given: Any) -> bool:
    """One line."""
    return isinstance(given, FedskewError) and str(given).isprintable()


def harmless(given: Any) -> bool:
    """A model, or one line: that of the command, too, where memory is short."""
    short = isinstance(given, Exception) and _message_of(given) == SHORT
    return refused(given) or short or isinstance(given, fs.Result)


def all_refused(what: str, makes: Iterable[tuple[str, Callable[[Path], object]]], place: Path) -> None:
    """Copies of a good folder, each made bad in another way, are refused in one line."""
    with Line("models of transformers", what) as line:
        for case, make in makes:
            folder = copied("bert", place)
            make(folder)
            given = trained("bert", folder)
            line.check(refused(given), f"{case}: {given!r:.200}")


def test_every_entry_of_a_configuration_with_a_wrong_value(tmp_path: Path) -> None:
    with Line("models of transformers", "config.json") as line:
        for family in FAMILY:
            held = json.loads((whole(family) / "config.json").read_text())
            for i, name in enumerate(dict.fromkeys((*held, *MORE))):
                for value in WRONG if FULL else WRONG[i % 5 :: 5]:
                    folder = copied(family, tmp_path / "model")
                    (folder / "config.json").write_text(json.dumps(held | {name: value}))
                    for weights in ("pretrained", "random")[: some(1, 2)]:
                        given = trained(family, folder, weights=weights)
                        line.check(harmless(given), f"{family} {name}={value!r:.40} {weights}: {given!r:.300}")


def test_damaged_files(tmp_path: Path) -> None:
    with Line("models of transformers", "damaged files") as line:
        for family in FAMILY:
            folder, other = copied(family, tmp_path / family), (whole("bert") / "config.json").read_bytes()
            for name in ("config.json", "model.safetensors"):
                line.strike(folder / name, other, some(20, 200), partial(trained, family, folder), harmless, 1)


def test_pipes_devices_folders_and_links(tmp_path: Path) -> None:
    with Line("models of transformers", "pipes, devices, folders and links") as line:
        outside = Path(shutil.copytree(whole("bert"), tmp_path / "outside"))
        for what in ("pipe", "device", "folder", "loop", "link", "nothing"):
            for name in (*MEMBERS, "tokenizer.json", "tokenizer_config.json"):
                folder = copied("bert", tmp_path / "model")
                if name == MEMBERS[2]:
                    (folder / MEMBERS[1]).unlink()
                stand(folder / name, what, outside / "model.safetensors")
                given = (
                    trained("bert", folder)
                    if name in MEMBERS
                    else outcome(partial(HF(path=str(folder)).rows, ["a text"]))
                )
                line.check(refused(given), f"{what} {name}: {given!r:.200}")


def indexes(outside: Path) -> Iterator[tuple[str, Any]]:
    """Content of an index that names what it may not."""
    for name in (
        "pytorch_model.bin", "../outside/model.safetensors", str(outside / "model.safetensors"), "/dev/zero", "..", ".",
        "", "a/b.safetensors", "..\\b.safetensors", "a\0.safetensors", "\ud800.safetensors", "no.safetensors",
        "pipe.safetensors", "link.safetensors", "n" * 300 + ".safetensors", 3, None, [], {},
    ):  # fmt: skip
        yield repr(name)[:40], {"metadata": {}, "weight_map": {"a": name}}
    for odd in (None, [], "x", {"weight_map": None}, {"weight_map": []}, {"weight_map": {}}, {"metadata": {}}):
        yield repr(odd), odd


def test_an_index_names_safetensors_files_of_its_folder_alone(tmp_path: Path) -> None:
    outside = Path(shutil.copytree(whole("bert"), tmp_path / "outside"))

    def make(content: Any, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        os.mkfifo(folder / "pipe.safetensors")
        (folder / "link.safetensors").symlink_to(outside / "model.safetensors")
        torch.save({}, folder / "pytorch_model.bin")
        (folder / "model.safetensors.index.json").write_text(json.dumps(content))

    makes = ((case, partial(make, content)) for case, content in indexes(outside))
    all_refused("index of weights", makes, tmp_path / "model")


def headers(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """Files whose header lies."""
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    name = next(n for n in header if n != "__metadata__")

    def made(change: Any) -> bytes:
        text = json.dumps({**header, name: {**header[name], **change}}).encode()
        return struct.pack("<Q", len(text)) + text + data

    yield "size of 2**60", struct.pack("<Q", 1 << 60) + raw[8:]
    yield "nested", struct.pack("<Q", 100_000) + b"[" * 100_000
    for change in ({"shape": [1 << 40, 1 << 40]}, {"shape": [-1]}, {"dtype": "X"}, {"dtype": "F8_E4M3"}, {"shape": "x"},
                   {"data_offsets": [0, 1 << 60]}, {"data_offsets": [5, 1]}, {"data_offsets": None}):  # fmt: skip
        yield repr(change), made(change)


def test_headers_that_lie(tmp_path: Path) -> None:
    file = whole("bert") / "model.safetensors"
    makes = ((case, lambda place, c=c: (place / file.name).write_bytes(c)) for case, c in headers(file.read_bytes()))
    all_refused("headers of weights", makes, tmp_path / "model")


@pytest.mark.parametrize("name", ["num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size"])
def test_a_network_of_terabytes_is_refused_before_it_is_made(name: str, tmp_path: Path) -> None:
    with Line("models of transformers", "terabytes") as line:
        for value in (1 << 23, 1 << 24, 1 << 40):
            folder = copied("bert", tmp_path / "model")
            held = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(held | {"hidden_size": 1 << 20} | {name: value}))
            for weights in ("pretrained", "random"):
                given = trained("bert", folder, weights=weights)
                line.check(isinstance(given, FedskewError), f"{name}={value} {weights}: {given!r:.200}")


def test_tensors_of_other_types_and_values(tmp_path: Path) -> None:
    held = load_file(whole("bert") / "model.safetensors")
    name = "bert.encoder.layer.0.attention.self.query.weight"
    values: dict[str, Any] = {
        "int64": held[name].long(), "int8": held[name].char(), "bool": held[name].bool(),
        "complex": held[name].to(torch.complex64), "fp8": held[name].to(torch.float8_e4m3fn),
        "nan": held[name] * float("nan"), "infinite": held[name].double() + 1e300, "shape": held[name][:3],
        "scalar": held[name][0, 0], "empty": held[name][:0],
    }  # fmt: skip

    def make(value: torch.Tensor, folder: Path) -> None:
        save_file({**held, name: value.contiguous()}, folder / "model.safetensors", {"format": "pt"})

    all_refused("tensors", ((case, partial(make, value)) for case, value in values.items()), tmp_path / "model")


CODE = "import pathlib\npathlib.Path({!r}).write_text('ran')\nraise SystemExit\n"
MAPS = {
    "config.json": ("AutoConfig", "AutoModelForSequenceClassification"), "tokenizer_config.json": ("AutoTokenizer",),
}  # fmt: skip


@pytest.mark.parametrize("known", [True, False])
def test_code_in_a_folder_never_runs(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither by `run`, which nobody is asked by, nor by `evaluate` and `run --from` of a stranger's run folder."""
    folder, mark = copied("bert", tmp_path / "model"), tmp_path / "ran"
    shutil.copy(folder_of("bert") / "tokenizer.json", folder)
    data = tmp_path / "data.npz"
    fed = skewed(True).dataset
    np.savez(data, x=fed.x, y=fed.y, x_test=fed.x_test, y_test=fed.y_test)
    model = ("--model", "hf", "--model.path", folder)
    words = (*model, "--data", "npz", "--path", data, "--rounds", "1", "--clients", "2")
    assert fedskew("run", "fedavg", *words, "--cohort", "2", "--out", tmp_path / "good") == 0
    (folder / "evil.py").write_text(CODE.format(str(mark)))
    for file, names in MAPS.items():
        held = json.loads(f.read_text()) if (f := folder / file).exists() else {}
        entry: dict[str, Any] = dict.fromkeys(names, "evil.Evil")
        entry = {n: ["evil.Evil", "evil.Evil"] if n == "AutoTokenizer" else v for n, v in entry.items()}
        odd = {} if known or file != "config.json" else {"model_type": "evil"}
        (folder / file).write_text(json.dumps(held | odd | {"auto_map": entry}))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    codes = [
        fedskew("run", "fedavg", *words, "--cohort", "2", "--out", tmp_path / "out"),
        fedskew("evaluate", tmp_path / "good", "--data", "npz", "--path", data),
        fedskew("run", "--from", tmp_path / "good", "--out", tmp_path / "again"),
    ]
    outcome(partial(HF(path=str(folder)).rows, ["a text"]))
    output = capsys.readouterr()
    assert codes == ([0] * 3 if known else [2] * 3), output.err
    assert not mark.exists() and "fault of fedskew" not in output.err


@pytest.mark.parametrize("name", ["org/kernel", "kernels-community/flash-attn2", "flash_attention_2", "flex_attention"])
def test_attention_is_that_of_torch_whatever_the_configuration_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("bert", tmp_path / "model")
    held = json.loads((folder / "config.json").read_text())
    entries = {"attn_implementation": name, "_attn_implementation": name, "_attn_implementation_internal": name,
               "experts_implementation": name, "_experts_implementation": name}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(held | entries))
    plain = trained("bert", whole("bert"))
    result = trained("bert", folder)
    assert isinstance(result, fs.Result) and all(torch.equal(result.params[n], v) for n, v in plain.params.items())
