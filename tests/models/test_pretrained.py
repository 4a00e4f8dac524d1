"""Models of transformers: small ones of a configuration, in folders that the tests write. Nothing is downloaded."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[hf]'")
pytest.importorskip("peft", reason="peft is not installed: pip install -e '.[hf]'")
import transformers

import fedskew as fs
from fedskew import rng
from fedskew.models import HF, build
from fedskew.models.prepare import Model, prepare
from support.paths import ROOT
from support.pretrained import FAMILIES, LENGTH, WORDS, folder_of, images, rows_of, skewed, texts

pytestmark = [
    pytest.mark.filterwarnings("ignore:fan_in_fan_out"),  # of peft, about GPT-2's layers
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # peft calls it
]
TEXTS = ("bert", "distilbert", "roberta", "gpt2", "llama")
KEY = rng.key(7)


def network(family: str, **options: Any) -> HF:
    return HF(path=str(folder_of(family)), weights="random", **options)


def prepared(family: str, classes: int = 3, **options: Any) -> Model:
    shape = (LENGTH,) if family in TEXTS else (1, 8, 8)
    return prepare(build(network(family, **options), shape, classes, 0), "head", shape, classes)


def saved(folder: Path) -> Any:
    """A network of text with random weights, and its folder."""
    made = build(network("bert"), (LENGTH,), 3, 0)
    made.save(prepare(made, "head", (LENGTH,), 3).params, ("a", "b", "c"), folder)  # type: ignore[operator]
    return made


def auto_of(family: str) -> Any:
    """What transformers makes a classifier by."""
    kind = "Sequence" if family in TEXTS else "Image"
    return getattr(transformers, f"AutoModelFor{kind}Classification")


def given(family: str, x: Tensor) -> dict[str, Tensor]:
    """Rows as a network of transformers takes them."""
    ids = {"input_ids": x.long().clamp(min=0), "attention_mask": (x >= 0).long()}
    return ids if family in TEXTS else {"pixel_values": x}


def refused(model: HF, shape: tuple[int, ...] = (LENGTH,), classes: int = 3) -> str:
    """The line that is said."""
    with pytest.raises(fs.ConfigError) as caught:
        build(model, shape, classes, 0)
    assert str(caught.value).isprintable()
    return str(caught.value)


def logits(model: Model, x: Tensor, train: bool = False) -> Tensor:
    out, _ = model.forward(model.params, model.buffers, x, torch.ones(len(x)), train=train, key=KEY)
    return out.logits


def go(family: str, method: fs.Method | None = None, **options: Any) -> fs.Result:
    given = {"rounds": 2, "cohort": 3, "engine": "sequential", "train": "all"} | options
    model = network(family, train=given.pop("train"))
    return fs.run(skewed(family in TEXTS), method or fs.methods.fedavg(), model=model, **given)


def same(a: fs.Result, b: fs.Result) -> bool:
    pairs = ((a.params, b.params), (a.buffers, b.buffers))
    return all(one.keys() == two.keys() and all(torch.equal(one[n], two[n]) for n in one) for one, two in pairs)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_outputs_are_those_of_transformers(family: str) -> None:
    model = prepared(family)
    x = rows_of(family)
    theirs: Any = build(network(family), model.shape, 3, 0)
    inner, head = theirs.network.eval(), theirs.head
    parent, _, own = theirs.place.rpartition(".")
    setattr(inner.get_submodule(parent), own, head)
    with torch.no_grad():
        assert torch.allclose(logits(model, x), inner(**given(family, x)).logits, atol=1e-6)


@pytest.mark.parametrize("family", TEXTS)
def test_padding_does_not_show(family: str) -> None:
    model = prepared(family)
    x = rows_of(family)
    x[:, 8:] = -1
    assert torch.allclose(logits(model, x[:, :8]), logits(model, x), atol=1e-6)
    other = x.clone()
    other[:, 7] = 5
    assert not torch.allclose(logits(model, other), logits(model, x), atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_that_are_computed_again_have_the_same_gradients(family: str) -> None:
    if family in ("resnet", "convnext"):
        with pytest.raises(fs.ConfigError, match="checkpointing"):
            prepared(family, checkpointing=True)
        return
    found: list[list[Tensor]] = []
    passes = []
    for again in (False, True):
        model, count = prepared(family, checkpointing=again), [0]
        for layer in model.module.modules():
            if "Norm" in type(layer).__name__:
                layer.register_forward_hook(lambda *_, count=count: count.__setitem__(0, count[0] + 1))
        x = rows_of(family)
        leaves = {n: (2 * p).requires_grad_() for n, p in model.params.items()}  # not those that the module holds
        out, _ = model.forward(leaves, model.buffers, x, torch.ones(len(x)), train=True, key=KEY)
        logits(model, x.flip(0), train=True)  # a call between the two
        grads = torch.autograd.grad(out.logits.square().sum(), list(leaves.values()), materialize_grads=True)
        found.append(list(grads))
        passes.append(count[0])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True)) and passes[1] > passes[0]


@pytest.mark.parametrize("train", ["all", "head", "lora"])
@pytest.mark.parametrize("family", ["bert", "vit"])
def test_engines_agree_and_what_travels_is_what_is_trained(family: str, train: str, tmp_path: Path) -> None:
    whole = go(family, train=train, out=tmp_path / "whole")
    assert same(whole, go(family, train=train, engine="threaded"))
    model = prepared(family, 3 if family in TEXTS else 10, train=train)
    assert model.params.keys() == whole.params.keys() and not whole.buffers
    bytes_ = 3 * sum(p.nbytes for p in model.params.values())
    assert (
        [row["upload_bytes"] for row in whole.rounds] == [bytes_, bytes_] == [r["download_bytes"] for r in whole.rounds]
    )
    assert (whole.params["head.weight"] != model.params["head.weight"]).any()
    if train == "lora":
        assert all("lora_" in n or n.startswith("head.") for n in model.params)
    go(family, train=train, out=tmp_path / "part", rounds=1)
    assert same(whole, go(family, train=train, out=tmp_path / "part", resume=True))
    loaded = fs.load_model(tmp_path / "whole")
    x = skewed(family in TEXTS).dataset.x_test
    assert torch.equal(loaded.probabilities(x), whole.probabilities(x))


def test_frozen_batch_normalisation_is_a_constant() -> None:
    assert prepared("resnet").buffers and not prepared("resnet", train="lora").buffers
    model, x = prepared("resnet", train="head"), rows_of("resnet")
    assert torch.equal(logits(model, x, train=True), logits(model, x))


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "vit", "resnet"])
@pytest.mark.parametrize("train", ["all", "lora"])
def test_a_saved_model_is_theirs(family: str, train: str, tmp_path: Path) -> None:
    import peft

    auto, base = auto_of(family), tmp_path / "base"
    config = transformers.AutoConfig.from_pretrained(folder_of(family))
    config.num_labels = 3 if family in TEXTS else 10
    if family in TEXTS:
        config.pad_token_id = 0
    auto.from_config(config).save_pretrained(base)
    fed, train_it = skewed(family in TEXTS), {"rounds": 1, "cohort": 2, "engine": "sequential"}
    trained, again = (
        fs.run(fed, fs.methods.fedavg(), model=HF(path=str(base), train=train), **train_it).trained for _ in "12"
    )
    trained.save_pretrained(tmp_path / "saved")
    if train == "all":
        theirs = auto.from_pretrained(tmp_path / "saved")
        assert theirs.config.id2label == dict(enumerate(trained.label_names))
    else:
        theirs = peft.PeftModel.from_pretrained(auto.from_pretrained(base), tmp_path / "saved")
        files = tmp_path / "saved" / "adapter_model.safetensors", base / "model.safetensors"
        assert files[0].stat().st_size < files[1].stat().st_size
    x = fed.dataset.x_test[:9]
    with torch.no_grad():
        found = theirs.eval()(**given(family, x if family in TEXTS else x / 255)).logits.double().softmax(1)
    assert torch.allclose(found, trained.probabilities(x), atol=1e-5)
    assert torch.equal(again.probabilities(x), trained.probabilities(x))


def test_a_pretrained_head_is_kept_and_another_number_of_classes_gets_a_new_one(tmp_path: Path) -> None:
    first = saved(tmp_path)
    kept: Any = build(HF(path=str(tmp_path)), (LENGTH,), 3, 5)
    assert torch.equal(kept.head.weight, first.head.weight)
    one, same_seed, other = (build(HF(path=str(tmp_path)), (LENGTH,), 4, seed) for seed in (5, 5, 6))
    assert torch.equal(one.head.weight, same_seed.head.weight)
    assert not torch.equal(one.head.weight, other.head.weight)
    assert torch.equal(*(m.network.bert.pooler.dense.weight for m in (one, first)))


def test_rows_of_texts_and_images() -> None:
    model = network("bert")
    said = [" ".join(words) for words in (WORDS[:3], WORDS[:6], WORDS[:1])]
    found = model.rows(said, length=5)
    assert found.shape == (3, 5) and model.rows(["x"], length=5).shape == (1, 5)
    assert (found[0] == -1).sum() == 2 and (found[1] >= 0).all() and found[2, 1] == -1
    data = fs.from_arrays(model.rows(texts()[0]), texts()[1])
    assert data.x.min() == -1 and data.classes == 3
    vit = network("vit")
    made = vit.rows([np.full((16, 12, 3), 200, np.uint8)] * 2)
    assert made.shape == (2, 3, 8, 8) and made.dtype == np.uint8 and abs(int(made.mean()) - 200) <= 1
    assert vit.pixels() == {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)} or vit.pixels()["std"] == [0.25] * 3


def test_a_token_beyond_the_vocabulary_is_one_error() -> None:
    x, y = images()[0].reshape(-1, 64)[:, :LENGTH] * 0, images()[1]
    x[3, 3] = 77
    fed = fs.federate(fs.from_arrays(x.astype(np.float32), y), "iid", clients=3)
    with pytest.raises(fs.ConfigError, match=r"tokens to read, whole numbers -1\.\.49; got 77"):
        fs.run(fed, fs.methods.fedavg(), model=network("bert"), rounds=1)


def test_what_cannot_be_trained_is_one_line(tmp_path: Path) -> None:
    assert "HF.path must name the folder of a model" in refused(HF())
    assert "HF.path must hold weights in model.safetensors" in refused(HF(path=str(tmp_path)))
    assert "HF.path must hold config.json" in refused(HF(path=str(tmp_path), weights="random"))
    assert "must name a model that classifies text" in refused(network("vit"))
    assert "must name a model that classifies images" in refused(network("bert"), (1, 8, 8))
    assert "HF.path must hold weights in model.safetensors" in refused(HF(path=str(folder_of("bert"))))
    assert "HF.targets must name layers of the model" in refused(network("bert", train="lora", targets=("nowhere",)))
    config = json.loads((folder_of("bert") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"problem_type": "regression"}))
    assert "fedskew has no regression" in refused(HF(path=str(tmp_path), weights="random"))
    config = json.loads((folder_of("llama") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 0}))
    assert "must have one linear classifier with inputs" in refused(HF(path=str(tmp_path), weights="random"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of a hub with one model, org/tiny: files are links into the folder of its blobs."""
    import huggingface_hub

    place = tmp_path / "cache" / "models--org--tiny"
    snapshot = place / "snapshots" / ("c" * 40)
    saved(place / "blobs")
    snapshot.mkdir(parents=True)
    for file in (place / "blobs").iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")

    def download(name: str, *, revision: str | None, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        if name != "org/tiny" or revision not in (None, "c" * 40):
            raise OSError("no such model\nat all")
        assert not any(pattern.endswith((".py", ".bin", "*")) for pattern in allow_patterns)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return snapshot


def test_the_commit_of_a_model_of_the_hub_is_recorded(hub: Path, tmp_path: Path) -> None:
    run = fs.run(skewed(True), fs.methods.fedavg(), model=HF(path="org/tiny"), rounds=1, cohort=2, out=tmp_path / "run")
    for file in ("config.json", "model.json"):
        assert json.loads((tmp_path / "run" / file).read_text())["model"]["revision"] == "c" * 40
    x = skewed(True).dataset.x_test
    assert torch.equal(fs.load_model(tmp_path / "run").probabilities(x), run.probabilities(x))
    (hub / "model.safetensors").unlink()
    (hub / "model.safetensors").symlink_to("/dev/zero")
    assert "regular files of its own folder; got 'model.safetensors'" in refused(HF(path="org/tiny"))


def test_a_folder_comes_before_a_model_of_the_hub(hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused(HF(path="org/other"))
    assert said.endswith("its name on a hub that can be reached; got OSError: no such model at all")
    for odd in ("../x", "/nowhere", "a b", "org/tiny/x", "x\n"):
        assert "must be the folder of a model, or its name on the hub; got" in refused(HF(path=odd))
    (tmp_path / "org" / "tiny").mkdir(parents=True)
    assert "must hold weights in" in refused(HF(path="org/tiny"))
    assert "HF.revision must stay unset for a folder" in refused(HF(path="org/tiny", revision="main"))


def test_weights_that_are_missing_are_named(tmp_path: Path) -> None:
    saved(tmp_path)
    held = load_file(tmp_path / "model.safetensors")

    def told(tensors: dict[str, Tensor]) -> str:
        save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
        return refused(HF(path=str(tmp_path)))

    pooler = "bert.pooler.dense.weight"
    assert f"1 missing: {pooler}" in told({n: v for n, v in held.items() if n != pooler})
    assert f"others: {pooler!r} of (3, 16) for (16, 16)" in told(held | {pooler: held[pooler][:3]})
    assert "1 tensors are no floats" not in told({"x\x1b[2J\n": held[pooler]})
    assert f"1 missing: {pooler}; no floats: {pooler}" in told(held | {pooler: held[pooler].long()})
    assert f"finite in float32; got others in {pooler!r}" in told(held | {pooler: held[pooler] / 0})
    whole = {n: v for n, v in held.items() if "classifier" not in n}
    save_file(whole, tmp_path / "model.safetensors", {"format": "pt"})
    assert build(HF(path=str(tmp_path)), (LENGTH,), 4, 0)  # a head alone may be missing


def test_the_page_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the folder of a user who has the two models that it names."""
    monkeypatch.chdir(tmp_path)
    for name, family in (("my-bert", "bert"), ("my-vit", "vit")):
        shutil.copytree(folder_of(family), name)
        config = transformers.AutoConfig.from_pretrained(name)
        config.num_channels = 3  # as the image processor has them
        auto_of(family).from_config(config).save_pretrained(name)
    page = (ROOT / "docs/guide/transformers.md").read_text(encoding="utf-8")
    held: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, held)
        held |= {"pictures": [*np.random.default_rng(0).integers(0, 255, (40, 12, 16, 3), np.uint8)]}
        held |= {"labels": [*"ab"] * 20}
    assert held["result"].predict(held["net"].rows(held["pictures"])).shape == (40,)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    model = network("bert")  # whose folder is written by the package
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "package transformers, which is not installed; pip install '.[hf]'" in refused(model)


def test_a_model_of_timm_is_a_network_of_your_own() -> None:
    pytest.importorskip("torchvision", exc_type=ImportError)
    timm = pytest.importorskip("timm", exc_type=ImportError)
    model: nn.Module = timm.create_model("resnet10t", num_classes=10, in_chans=1)
    head = model.pretrained_cfg["classifier"]
    assert fs.run(skewed(False), fs.methods.fedavg(), model=model, head=head, rounds=1, cohort=2).rounds
