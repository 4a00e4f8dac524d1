"""`fedskew flower`: an app's files and a deployment's keys; no test here needs Flower."""

from __future__ import annotations

import json
import math
import re
import stat
import sys
import tomllib
from pathlib import Path

import pytest

from fedskew import flower
from fedskew.errors import ConfigError
from fedskew.flower.app import _toml, nodes_of
from fedskew.flower.options import experiment_of, server_options
from fedskew.flower.rows import inputs_of
from support.command import fedskew, mistake, output_of
from support.paths import ROOT


def config_of(app: Path) -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return found


def test_init_writes_an_app_whose_configuration_is_the_run(tmp_path: Path) -> None:
    app = tmp_path / "my app"
    words = ["--clients", "7", "--partition.alpha", "0.3", "--lr", "0.05", "--parts.control_variate.option", "1"]
    assert "15 files" in output_of("flower", "init", "scaffold", *words, "--out", app)
    config = config_of(app)
    found = experiment_of(config)
    assert (found.clients, found.partition.alpha, found.method.pace.lr) == (7, 0.3, 0.05)
    assert found.method.parts[-1].option == 1
    assert server_options(config).out == "run"
    inputs, augment = inputs_of(app / "app")
    assert (inputs.shape, len(inputs.label_names), augment) == ((1, 8, 8), 10, ())
    for name in ("server", "client"):
        compile((app / "app" / f"{name}.py").read_text(), name, "exec")
    project = tomllib.loads((app / "pyproject.toml").read_text())
    assert project["project"]["name"] == "fedskew-app"
    assert project["tool"]["flwr"]["app"]["components"]["serverapp"] == "app.server:app"


def test_init_says_what_a_method_asks_of_nodes(tmp_path: Path) -> None:
    said = output_of("flower", "init", "fedla", "--out", tmp_path / "app")
    assert "a node must allow histogram, the rows of each class that the client holds" in said
    assert "${ALLOW:-histogram}" in (tmp_path / "app" / "node.sh").read_text()


def test_init_for_secure_sums_starts_nodes_for_them_alone(tmp_path: Path) -> None:
    out = output_of("flower", "init", "fedla", "--secure", "sums", "--out", tmp_path / "app")
    assert "node.sh sets SECURE: a node sends its part of sums" in out and "must allow" not in out
    script = (tmp_path / "app" / "node.sh").read_text()
    assert "${SECURE:-3}" in script and "${ALLOW:-none}" in script
    readme = (tmp_path / "app" / "README.md").read_text()
    assert "needs from each node: its part of sums over at least 3 nodes." in readme
    assert config_of(tmp_path / "app")["secure"] == "sums"
    assert fedskew("flower", "init", "fedla", "--out", tmp_path / "plain") == 0
    assert "${SECURE:-0}" in (tmp_path / "plain" / "node.sh").read_text()
    said = mistake("flower", "init", "fedpals", "--secure", "sums", "--out", tmp_path / "refused")
    assert "--secure must be none for fedpals, whose " in said
    words = ["--secure", "sums", "--own-data", "--encoding", "nodes"]
    assert "with secure sums" in mistake("flower", "init", "fedla", *words, "--out", tmp_path / "refused")


def test_init_for_nodes_with_data_of_their_own_takes_an_example(tmp_path: Path) -> None:
    rows = "60,f,ill\n45,m,well\n50,m,ill\n30,f,well\n70,f,ill\n" * 4
    (tmp_path / "example.csv").write_text(f"age,sex,class\n{rows}")
    words = ["--own-data", "--data", "csv", "--data.path", tmp_path / "example.csv", "--data.categories", "sex"]
    words += ["--clients", 3, "--model", "logistic", "--out", tmp_path / "app"]
    said = output_of("flower", "init", "fedla", *words)
    assert "column 'sex' has the categories f, m; another one at a node is refused" in said
    config = config_of(tmp_path / "app")
    assert server_options(config).own_data
    assert config["clients"] == 3 and "example.csv" not in str(config)  # whose path is the server's own
    inputs, _ = inputs_of(tmp_path / "app" / "app")
    assert inputs.encoding is not None
    assert inputs.samples({"age": ["50"], "sex": ["m"]}).shape == (1, 3)
    experiment_of(config)


@pytest.mark.parametrize("blank", [True, False])
def test_a_blank_that_the_example_lacks_says_nothing_at_a_node(blank: bool, tmp_path: Path) -> None:
    rows = ["60,f,ill", "45,m,well", "50,m,ill", "30,f,well", *["70,,ill", "20,,well"] * blank] * 4
    (tmp_path / "example.csv").write_text("\n".join(["age,sex,class", *rows, "41,x,ill", "42,y,well"]))
    words = ["--own-data", "--data", "csv", "--data.path", tmp_path / "example.csv", "--data.categories", "sex"]
    words += ["--data.missing", "fill", "--model", "logistic", "--out", tmp_path / "app"]
    out = output_of("flower", "init", "fedavg", *words)
    assert "another one at a node counts as missing" in out
    assert blank == ("column 'sex': a blank at a node says nothing" not in out)
    inputs, _ = inputs_of(tmp_path / "app" / "app")
    (x,) = inputs.samples({"age": [50], "sex": [""]}, notes=[])
    assert x[1:].sum() == blank == x[-1]


def test_an_app_is_not_written_over(tmp_path: Path) -> None:
    assert fedskew("flower", "init", "fedavg", "--out", tmp_path / "app") == 0
    before = (tmp_path / "app" / "pyproject.toml").read_text()
    said = mistake("flower", "init", "fedprox", "--out", tmp_path / "app")
    assert "--out must name a folder without an app" in said
    assert (tmp_path / "app" / "pyproject.toml").read_text() == before
    (tmp_path / "mine" / "app").mkdir(parents=True)
    assert "--out must name a folder without an app" in mistake("flower", "init", "fedavg", "--out", tmp_path / "mine")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["init"], "name a METHOD"),
        (["keys", "extra"], "takes options alone"),
        (["keys", "--app", "nowhere"], "app must be the folder of an app; got 'nowhere'; `fedskew flower init`"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], told: str, tmp_path: Path) -> None:
    assert told in mistake("flower", *words)


def test_the_engine_flower_says_where_to_begin() -> None:
    said = mistake("run", "fedavg", "--engine", "flower")
    assert "--engine must be one that runs in this process; got 'flower'; `fedskew flower init`" in said


@pytest.mark.flower
def test_keys_are_made_once_and_are_for_their_owner(tmp_path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    assert fedskew("flower", "keys", "--app", tmp_path, "--nodes", 2, "--host", "server.example.org") == 0
    keys = tmp_path / "keys"
    held = {file.name: file.read_bytes() for file in keys.iterdir()}
    assert len(held.pop("nodes.lst").splitlines()) == 2  # which grows with the nodes
    assert sorted(held) == ["ca.crt", "node-0", "node-0.pub", "node-1", "node-1.pub", "server.crt", "server.key"]
    for name in ("node-0", "node-1", "server.key"):
        assert stat.S_IMODE((keys / name).stat().st_mode) == 0o600
    authority, server = (x509.load_pem_x509_certificate(held[n]) for n in ("ca.crt", "server.crt"))
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "server.example.org" in names.get_values_for_type(x509.DNSName)
    assert fedskew("flower", "keys", "--app", tmp_path, "--nodes", 3) == 0
    assert {file.name: file.read_bytes() for file in keys.iterdir() if file.name in held} == held
    assert (keys / "node-2").exists()


def test_keys_without_the_extra_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert "pip install '.[flower]'" in mistake("flower", "keys", "--app", tmp_path, "--nodes", 2)


def test_an_app_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[flower\]'"):
        flower.server_app()
    with pytest.raises(ConfigError, match=r"pip install '\.\[flower\]'"):
        _ = flower.FedSkewStrategy
    assert json.dumps(flower.aggregation_weights("size", [1, 1]).tolist()) == "[0.5, 0.5]"


NAMES = [
    'quo"te', "back\\slash", "\U0001f600", "\x01\x1f\x7f", "li\nne\ttab\r", "Zürich²", "{root} {name}", "'''", "class",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_an_app_in_a_folder_of_any_name_is_toml(tmp_path: Path, name: str) -> None:
    app = tmp_path / name
    assert fedskew("flower", "init", "fedavg", "--clients", 3, "--out", app / "app") == 0
    assert nodes_of(app / "app") == 3
    links = tomllib.loads((app / "app" / ".flwr/config.toml").read_text(encoding="utf-8"))
    assert links["superlink"]["deployment"]["root-certificates"] == str(app / "app" / "keys" / "ca.crt")


@pytest.mark.parametrize("value", [*NAMES, "", 0, -3, 10**9, 0.1, -1e-300, 1e300, math.inf, -math.inf, True, False])
def test_what_a_configuration_holds_comes_back_from_toml(value: object) -> None:
    back = tomllib.loads(f"{_toml('a.b')} = {_toml(value)}")["a.b"]
    assert back == value and type(back) is type(value)


def test_a_folder_whose_name_is_no_utf8_is_refused_with_nothing_written(tmp_path: Path) -> None:
    app = tmp_path / "\udcff" / "app"
    assert "must be Unicode" in mistake("flower", "init", "fedavg", "--out", app)
    assert not list(tmp_path.iterdir())


HOSTS = ["zürich.example.org", "", f"{'a' * 40}.{'b' * 40}", "https://server", "fe80::1%eth0", "999.1.1.1", "a\nb"]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_no_certificate_names_is_refused(tmp_path: Path, host: str) -> None:
    said = mistake("flower", "keys", "--nodes", 1, "--app", tmp_path / "app", "--host", host)
    assert "host must be a DNS name of at most 64 characters, or an address; got" in said and "for example" in said
    assert not (tmp_path / "app").exists()


@pytest.mark.parametrize("host", ["localhost", "a" * 63, "192.0.2.1", "2001:db8::1", "my_server"])
def test_names_and_addresses_of_hosts_get_their_keys(tmp_path: Path, host: str) -> None:
    pytest.importorskip("cryptography")
    assert fedskew("flower", "keys", "--nodes", 1, "--app", tmp_path, "--host", host) == 0


def test_nothing_ends_processes_by_a_name() -> None:
    """It would end those of others, too."""
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "scripts").rglob("*")]
    texts += (ROOT / "src" / "fedskew" / "flower" / "files").iterdir()
    for path in texts:
        if path.is_file() and path.suffix in ("", ".md", ".py", ".sh", ".txt"):
            assert not re.search(r"\b(pkill|killall)\b", path.read_text(encoding="utf-8")), path
