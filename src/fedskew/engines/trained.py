"""A trained model with all that prediction needs: `Trained`, and how a run folder keeps it.

``model.json`` beside ``final.safetensors`` holds the network and its options, the classifier layer, the shape and
normalisation of the inputs, the columns of a table with their categories and standardisation, and the classes' names.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedskew import models
from fedskew.data.arrays import Dataset, Reading
from fedskew.data.federation import Federation, On
from fedskew.data.inputs import Inputs
from fedskew.engines.evaluation import Evaluator
from fedskew.engines.fitting import OBJECTIVES, Fit, fits_of, measured
from fedskew.engines.network import check_kind, frozen, put, tensors_of
from fedskew.engines.runtime import Runtime, one_thread
from fedskew.errors import ConfigError, DataError, FieldError, RecordError, require, some, unknown
from fedskew.fields import typed, untyped
from fedskew.method.component import spec
from fedskew.models import MODELS, Architecture
from fedskew.models.precision import DTYPES, NARROW, arithmetic
from fedskew.models.prepare import Model, prepare
from fedskew.records.decisions import FEW, Decision, choose_threshold, client_names, parsed_rule, report
from fedskew.records.files import member
from fedskew.records.folder import insist_on_run
from fedskew.records.manifest import check_file
from fedskew.records.metrics import PRECISION, from_confusion, from_probabilities
from fedskew.records.typed import Row, entries, object_of
from fedskew.types import Params, Width

FILE, OWN = "model.json", "own.safetensors"
FORMAT = 1  # of that file; reading another raises RecordError
ABOUT = entries(
    "About",
    {"format": int, "round": int, "data": entries("Data", {"fingerprint": str}, {"split": str})},
    {"own": dict[str, str]},
)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model: raw values in, classes and probabilities out.

    A run's `Result.trained` is one, and `load_model` makes one of a run folder.

    Attributes:
        model: The network.
        params: Trained parameters, those that the run evaluates.
        buffers: BatchNorm statistics.
        inputs: What it takes, and the names of its classes.
        precision: Precision of the products inside the network.
        fits: Biases and temperature that the run fitted, by objective, "prior" and "balanced"; empty where it did not.
        fingerprint: Of the data that it was trained on.
        split: `Federation.split` of the federation that it was trained on; "" where it is not on record.
    """

    model: Model
    params: Params
    buffers: Params
    inputs: Inputs
    precision: str = "float32"
    fits: Mapping[str, Fit] = field(default_factory=dict)
    fingerprint: str = ""
    split: str = ""

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the C classes, in the order of the columns of `probabilities`."""
        return self.inputs.label_names

    def probabilities(self, x: Any, *, encoded: bool = False, fitted: bool | str = False) -> Tensor:
        """Predicted probabilities: the softmax of the logits.

        Args:
            x: New rows. Of a model of a table: its raw columns by name, ``{"age": [61.2], ...}`` or a pandas frame; the
                training rows' categories, mean and standard deviation are applied. Of other models: an array [n, ...]
                as the dataset's ``x``, such as uint8 images, which are normalised as in training.
            encoded: ``x`` is an array of features that are encoded already, such as ``dataset.x_test`` of a table.
            fitted: Whether the biases and the temperature that the run fitted are applied: True or "prior" for those of
                the training prior, "balanced" for those under which every class counts alike.

        Returns:
            Probabilities, float64 [n, C], on the CPU.

        Raises:
            ConfigError: ``fitted`` is asked for and the run has no such fit.
            DataError: A column or a value is missing, a category is unknown, or the samples have another shape.
        """
        return self.of_samples(self.inputs.samples(x, encoded=encoded), fitted)

    def predict(self, x: Any, *, encoded: bool = False, fitted: bool | str = False) -> Tensor:
        """The most probable class of each row.

        Args:
            x: As for `probabilities`.
            encoded: As for `probabilities`.
            fitted: As for `probabilities`.

        Returns:
            Class numbers, int64 [n]; ``label_names`` has their names.

        Raises:
            ConfigError: As for `probabilities`.
            DataError: As for `probabilities`.
        """
        return self.probabilities(x, encoded=encoded, fitted=fitted).argmax(1)

    def evaluate(
        self, x: Any, y: Any = None, *, encoded: bool = False, recall_at: float = PRECISION, fitted: bool = False
    ) -> dict[str, Any]:
        """Metrics on rows with labels, as a round's record has them.

        Args:
            x: As for `probabilities`; or a `Dataset`, whose test rows are taken.
            y: Labels, [n]: names of the classes, or numbers that are such names. None for a dataset.
            encoded: As for `probabilities`.
            recall_at: Precision at which the recall of each class is measured, in (0, 1].
            fitted: Whether the model is fitted: recalls, F1, balanced accuracy and the matrix are then those of the
                balanced fit, all else of that of the training prior.

        Returns:
            The metrics of `fedskew.metrics.from_confusion` and `fedskew.metrics.from_probabilities`; ``loss``, the mean
            cross-entropy, which others call log loss; and ``confusion``, the matrix as lists.

        Raises:
            ConfigError: There are no labels, or ``fitted`` is asked for and the run has no fit.
            DataError: As for `probabilities`; a label is no class of the model, or a dataset was encoded otherwise.
        """
        if hasattr(x, "x_test"):
            return self.of_labelled(*self.test_rows(x), recall_at, fitted)
        require(y is not None, "y", "hold the label of each row", None)
        return self.of_labelled(self.inputs.samples(x, encoded=encoded), self.inputs.labels(y), recall_at, fitted)

    def decide(
        self, fed: Federation | None, rule: str | float, positive: str | None = None, *,
        fitted: bool = False, client: int | None = None, per_client: bool = False,
    ) -> Decision:  # fmt: skip
        """Choose a threshold on the probability of one class by rows that training did not see.

        Args:
            fed: Whose rows: the federation that the model was trained on, which keeps validation rows. None goes with a
                threshold that is given as a number.
            rule: As for `fedskew.records.decisions.choose_threshold`: "recall@specificity=0.9", "fp=1,fn=5", 0.3.
            positive: Name of the class, which is decided against all others. None takes "1" of the classes "0" and "1".
            fitted: Whether the fitted model decides, by its fit of the training prior.
            client: Number of a client, whose rows alone are looked at; None takes the rows of all. So does a number
                where validation rows have no clients, which `Decision.client` says.
            per_client: Whether each client gets a threshold of its own, chosen on its own rows (`Decision.each`). A
                client with fewer than `FEW` rows of the class or of others gets that of all rows.

        Returns:
            The decision. ``decision(trained.probabilities(x))`` says which rows are positive.

        Raises:
            ConfigError: The rule or the class is none, there are no validation rows, or the federation is another one;
                with ``per_client``, no column says whose a validation row is, or the threshold is a number.
            DataError: The rows lack one of the two classes, or were encoded otherwise.

        Example:
            >>> import fedskew as fs
            >>> fed = fs.federate("digits", "iid", clients=5, validation=0.2)
            >>> trained = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, cohort=5).trained
            >>> decision = trained.decide(fed, "recall@specificity=0.95", positive="8")
            >>> measured = trained.evaluate_decision(fed, decision)
            >>> measured["threshold"]["specificity"]["value"] > 0.9, measured["rows"]
            (True, 359)
        """
        column, (kind, values) = self.column_of(positive), parsed_rule(rule)
        name = self.label_names[column]
        alone = kind != "number" and client is None
        require(alone or not per_client, "per_client", "go with a rule, and without client", per_client)
        if kind == "number":
            return Decision(name, column, values[0], str(rule), fitted=fitted)
        if fed is None:
            raise ConfigError(f"fed must be a federation, whose rows the rule {str(rule)!r} looks at; got None")
        need, hint = "be a number where no validation rows are kept", "a federation keeps some with validation=0.1"
        require(len(fed.validation_rows) > 0, "threshold", need, str(rule), hint)
        x, labels, owners = self.rows_on(fed, "validation")
        whose = "" if client is None or (owners < 0).all() else fed.name_of(client)
        if whose:
            x, labels = x[owners == client], labels[owners == client]
            require(len(x) > 0, "client", "have validation rows", whose)
        y, p = (labels == column).numpy(), self.of_samples(x, fitted)[:, column].numpy()

        def chosen(at: np.ndarray, whose: str) -> Decision:
            threshold, rows, positives = choose_threshold(y[at], p[at], rule), int(at.sum()), int(y[at].sum())
            return Decision(name, column, threshold, str(rule), "validation", rows, positives, fitted, whose)

        whole = chosen(np.ones(len(y), bool), whose)
        if not per_client:
            return whole
        clients_rule = "go with validation rows that have clients: those of natural clients, by a column"
        require(bool((owners >= 0).any()), "per_client", clients_rule, per_client)
        of = {fed.name_of(k): owners == k for k in np.unique(owners[owners >= 0]).tolist()}
        enough = {who: at for who, at in of.items() if FEW <= y[at].sum() <= at.sum() - FEW}
        rows_rule = f"go with a client that has {FEW} validation rows of either kind"
        require(bool(enough), "per_client", rows_rule, per_client)
        return replace(whole, each={who: chosen(at, who) for who, at in enough.items()})

    def evaluate_decision(self, fed: Federation, decision: Decision, on: On = "test") -> Row:
        """What decisions are worth on rows of a federation, of all and of each client's.

        Args:
            fed: Whose rows: the federation that the model was trained on, or the test rows of other data.
            decision: Of `decide`.
            on: Which rows; see `fedskew.data.Federation.rows_on`.

        Returns:
            As `fedskew.records.decisions.report`.

        Raises:
            ConfigError: There are no such rows, or the federation is another one.
            DataError: They were encoded otherwise.
        """
        x, labels, owners = self.rows_on(fed, on)
        chances = self.of_samples(x, decision.fitted)
        limits = decision.thresholds(client_names(owners, fed.client_names))
        return report(labels, chances, decision.column, limits, owners, fed.client_names)

    def column_of(self, positive: str | None) -> int:
        """Number of the class of this name; None is "1" of the classes "0" and "1". Raises ConfigError."""
        name = "1" if positive is None and self.label_names == ("0", "1") else positive
        rule = f"name the class to find, one of {some(self.label_names)}"
        require(name in self.label_names, "positive", rule, positive)
        return self.label_names.index(str(name))

    def rows_on(self, fed: Federation, on: On) -> tuple[Tensor, Tensor, np.ndarray]:
        """(samples, class numbers, clients) of rows of a federation; see `fedskew.data.Federation.rows_on`.

        Raises:
            ConfigError: There are no such rows, the classes are not the model's, or the federation divides the data
                otherwise than that of the run: its rows may have trained the model. Test rows of other data are taken.
            DataError: The rows were encoded otherwise.
        """
        places, owners = fed.rows_on(on)
        rows, classes = torch.from_numpy(places), len(self.label_names)
        if on != "test":
            require(fed.dataset.classes == classes, "fed", f"have the model's {classes} classes", fed.dataset.classes)
        if on != "test" or fed.dataset.fingerprint == self.fingerprint:
            rule = f"be the federation that the model was trained on, split {self.split or 'not on record'}"
            hint = "rows of another may have trained it; give the run's data, partition, clients, seed and shares"
            require(fed.split == self.split != "", "fed", rule, fed.split, hint)
        if on == "test":
            return *self.test_rows(fed.dataset), owners
        x = self.inputs.samples(fed.dataset.x[rows], encoded=True, what=repr(fed.dataset.name))
        return x, fed.dataset.y[rows], owners

    def test_rows(self, data: Dataset) -> tuple[Tensor, Tensor]:
        """(samples, class numbers of this model) of a dataset's test rows.

        Raises:
            DataError: They were encoded otherwise, have another shape, or a class that the model does not know.
        """
        if data.encoding != self.inputs.encoding:
            rule = f"the rows of {data.name!r} must be encoded as the model's training rows were"
            raise DataError(f"{rule}; give raw columns by name")
        names = data.class_names
        present = [names[c] for c in torch.bincount(data.y_test, minlength=data.classes).nonzero().flatten()]
        if other := [name for name in present if name not in self.label_names]:
            known = f"which the model was not trained on; it knows {some(self.label_names)}"
            hint = "ClassOptions.classes leaves the others out"
            raise DataError(f"{data.name!r} has the class {other[0]!r}, {known}; {hint}")
        x = self.inputs.samples(data.x_test, encoded=True, what=repr(data.name))
        return x, torch.tensor([self.label_names.index(n) if n in present else -1 for n in names])[data.y_test]

    def of_samples(self, x: Tensor, fitted: bool | str = False) -> Tensor:
        """`probabilities` of samples, which are normalised if they are images."""
        if fitted:
            fit = self.fit("prior" if fitted is True else fitted)
            return fit.logits(self.logits(x, torch.zeros(len(x), dtype=torch.int64))).softmax(1)
        with self._evaluator(x, torch.zeros(len(x), dtype=torch.int64)) as evaluator:
            return evaluator.outputs(self.params, self.buffers, None)[0]

    def fit(self, objective: str) -> Fit:
        """What the run fitted under "prior" or "balanced". Raises ConfigError where it did not."""
        known = f"be one of {', '.join(OBJECTIVES)}, or true or false"
        require(objective in OBJECTIVES, "fitted", known, objective)
        hint = "a run measures it after its last round unless fit_logits is none"
        require(objective in self.fits, "fitted", "be false: the model has no fit on record", True, hint)
        return self.fits[objective]

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a network of `fedskew.models.HF` as transformers loads it, or its adapters and head as peft loads them.

        Args:
            folder: Where the files are written; it is made.

        Raises:
            ConfigError: It is no such network, or it has a projection head.
        """
        network: Any = self.model.module
        fits = isinstance(network, models.Transformer) and isinstance(network.head, nn.Linear)
        require(fits, "model", "be an HF without a projection head", type(network).__name__)
        network.save({**self.model.constants, **self.params, **self.buffers}, self.label_names, Path(folder))

    def load_into(self, module: nn.Module) -> None:
        """Put the trained values into a network like the one that was trained.

        What the run did not train is no part of a trained model: frozen weights, constant buffers, and the second name
        of a tied weight stay as they are, and must be those of the run.

        Args:
            module: The network; it is changed in place.

        Raises:
            ConfigError: A value has no place in it, or another shape there; or it has weights that the run did not
                train and that differ.

        Example:
            >>> import torch
            >>> import fedskew as fs
            >>> rows = fs.from_arrays(torch.arange(60.0).view(20, 3) / 60, torch.arange(20) % 2)
            >>> fed, net = fs.federate(rows, "iid", clients=2), torch.nn.Sequential(torch.nn.Linear(3, 2))
            >>> trained = fs.run(fed, fs.methods.fedavg(), model=net, rounds=2).trained
            >>> trained.load_into(net)
            >>> bool((net(fed.dataset.x_test).argmax(1) == trained.predict(fed.dataset.x_test)).all())
            True
        """
        values, state = {**self.params, **self.buffers}, module.state_dict(keep_vars=True)
        for name, value in values.items():
            got = tuple(state[name].shape) if name in state else "nothing"
            require(got == tuple(value.shape), "module", f"have {name!r} of shape {tuple(value.shape)}", got)
        constant = {**self.model.constants, **self.model.non_persistent}
        leaves = {**state, **dict(module.named_buffers())}
        trained = {id(state[name]) for name in values}
        for name, leaf in leaves.items():
            if id(leaf) not in trained:
                same = name in constant and torch.equal(leaf.detach().to(constant[name]), constant[name])
                rule = f"have the {name!r} that the run had, which it did not train"
                require(same, "module", rule, "another" if name in constant else "one that the run lacked")
        with torch.no_grad():
            for name, value in values.items():
                state[name].copy_(value)

    def features(self, x: Tensor) -> Tensor:
        """What enters the classifier layer for samples, [n, F]."""
        with self._evaluator(x, torch.zeros(len(x), dtype=torch.int64)) as evaluator:
            return evaluator.outputs(self.params, self.buffers, torch.arange(len(x)).numpy())[1]

    def logits(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits of samples, [n, C]."""
        with self._evaluator(x, y) as evaluator:
            return evaluator.logits(self.params, self.buffers)[0]

    def of_labelled(self, x: Tensor, y: Tensor, recall_at: float = PRECISION, fitted: bool = False) -> dict[str, Any]:
        """`evaluate` of samples and class numbers."""
        require(0 < recall_at <= 1, "recall_at", "be in (0, 1]", recall_at)
        if len(x) != len(y):
            raise DataError(f"x and y must have the same number of rows; got {len(x)} and {len(y)}")
        if fitted:
            return measured(y, self.logits(x, y), {name: self.fit(name) for name in OBJECTIVES}, recall_at)
        with self._evaluator(x, y) as evaluator:
            matrix, loss, chances = evaluator.scored(self.params, self.buffers)
        ranked = from_probabilities(y, chances, recall_at) if math.isfinite(loss) else {}
        return {**from_confusion(matrix.cpu()), "loss": float(loss), **ranked, "confusion": matrix.tolist()}

    @contextmanager
    def _evaluator(self, x: Tensor, y: Tensor) -> Iterator[Evaluator]:
        """What a run's evaluation is made of, with one thread and the chunks of a run, so that numbers are its own."""
        first = next(iter(self.params.values()))
        runtime = Runtime.of(self.model, str(first.device), 1, ("cpu",))
        store = self.inputs.store(x.to(first.device), y.to(first.device), first.dtype)
        try:
            with one_thread(), torch.no_grad(), arithmetic(self.precision):
                yield Evaluator(runtime, store, len(self.label_names), keep=False)
        finally:
            runtime.workers.close()


def described(
    trained: Trained, model: Architecture | nn.Module, data: Dataset, round: int, dtype: str, projection: Width = 0
) -> dict[str, Any]:
    """What ``model.json`` holds.

    Args:
        trained: The model.
        model: The network, before it got the method's projection head where it is the user's own.
        data: What it was trained on.
        round: Rounds that it was trained for.
        dtype: Type of its parameters.
        projection: The head that the method put into a network of the user's own.

    Returns:
        Plain values. A network of the user's own is named only: its class is code, which a file does not hold.
    """
    listed = isinstance(model, Architecture) and MODELS.get(model.name) is type(model)
    width = {} if listed or not projection else {"projection": projection}
    read = {"reading": untyped(data.reading)} if data.reading != Reading() else {}
    return {
        "format": FORMAT, "model": spec(model) if listed else None, "network": type(model).__name__, **width,
        **({"fit": {name: fit.to_json() for name, fit in trained.fits.items()}} if trained.fits else {}),
        "head": trained.model.head, "dtype": dtype, "precision": trained.precision, "round": round,
        **frozen(trained.model),
        "inputs": untyped(trained.inputs),
        "data": {
            "name": data.name, "fingerprint": data.fingerprint, "notes": list(data.notes), **read,
            **({"split": trained.split} if trained.split else {}),
        },
    }  # fmt: skip


def load_model(
    run: str | Path, model: nn.Module | Architecture | None = None, *, best: bool = False,
    client: str | int | None = None,
) -> Trained:  # fmt: skip
    """The trained model of a run folder, ready to predict.

    Args:
        run: A run folder that `fedskew run` or ``fs.run(..., out=run)`` wrote.
        model: The network, where the run trained one of your own. Of its weights only those are read that the run did
            not train, and these must be the run's.
        best: The model of the best round by the run's monitor, in place of the last one.
        client: Name or number of a client, whose own model is taken; a run keeps these with ``keep_own``.

    Returns:
        The model that the run evaluates, with the standardisation, columns, categories and class names of its data.

    Raises:
        RecordError: It is no run folder, the run has no final model, or a file of it is damaged or lacks the client.
        ConfigError: The run trained a network of your own and none is given, or another one is given; it has no such
            client, or keeps no own models.

    Example:
        >>> import fedskew as fs
        >>> fed = fs.federate("digits", "iid", clients=5)
        >>> result = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, cohort=5, out="digits-run")
        >>> trained = fs.load_model("digits-run")
        >>> bool((trained.predict(fed.dataset.x_test) == result.predict(fed.dataset.x_test)).all())
        True
    """
    folder = Path(run)
    content = read_description(folder)
    try:
        inputs, precision, dtype = typed(content["inputs"], Inputs), content["precision"], DTYPES[content["dtype"]]
        network, head, narrow = _network(content, inputs, model, folder), content["head"], NARROW[precision]
        prepared = prepare(network, head, inputs.shape, len(inputs.label_names), narrow=narrow).to(dtype)
        fits = fits_of(content, len(inputs.label_names))
    except (ArithmeticError, AttributeError, FieldError, LookupError, TypeError, ValueError) as error:
        raise RecordError(f"{folder / FILE} is damaged: {type(error).__name__}: {error}") from None
    except RecordError as error:
        raise RecordError(f"{folder / FILE} is damaged: {error}") from None
    file = member(folder, "best.safetensors" if best else "final.safetensors")
    if best and not file.is_file():
        raise RecordError(f"the run {str(folder)!r} keeps no best model: it had no monitor")
    check_file(folder, file.name)
    tensors = tensors_of(file)
    if client is not None:
        require(not best, "best", "stand without client: own models are those of the last round", best)
        number = client_number(content, client)
        check_file(folder, OWN)
        tensors, fits = {**tensors, **_own(folder / OWN, owners_of(content), number, tensors)}, {}
    put(prepared, file, tensors)
    for name in tensors.keys() - prepared.params.keys() - prepared.buffers.keys() - prepared.constants.keys():
        check_kind(file, name, tensors[name])  # what the method added
    now = frozen(prepared)
    for kind, words in (("frozen", "frozen weights"), ("non_persistent", "non-persistent buffers")):
        if (was := content.get(kind)) and was != now.get(kind):
            raise ConfigError(f"model must have the {words} that the run had; got others")
    buffers = {name: tensors[name] for name in prepared.buffers}
    params = {n: v for n, v in tensors.items() if n not in buffers and n not in prepared.constants}
    of_data = content["data"]["fingerprint"], content["data"].get("split", "")
    return Trained(prepared, params, buffers, inputs, precision, {} if best else fits, *of_data)


def _own(file: Path, owners: Mapping[int, str], number: int, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What of a client's own model is not as in the global one. Raises RecordError where the file has nothing of it."""
    tensors = tensors_of(file, f"{number}/")
    if not tensors:
        there = {name.partition("/")[0] for name in tensors_of(file)}
        lacking = some([repr(name) for k, name in owners.items() if str(k) not in there])
        raise RecordError(f"{file} must hold the own model of each client of {FILE}; it lacks those of {lacking}")
    if other := sorted(set(tensors) - set(known)):
        raise RecordError(f"{file} must hold tensors of the run's network; got {other[0]!r} of {owners[number]!r}")
    for name in tensors:
        check_kind(file, name, tensors[name], known[name].dtype)
    return tensors


def owners_of(content: Mapping[str, Any]) -> dict[int, str]:
    """Numbers and names of the clients whose own models a run keeps."""
    return {int(k): name for k, name in content.get("own", {}).items() if k.isdecimal()}


def client_number(content: Mapping[str, Any], client: str | int) -> int:
    """Number of a client by its name or number, among those whose own models a run keeps. Raises ConfigError."""
    owners = owners_of(content)
    if not owners:
        rule = "the run keeps no clients' own models; a run with keep_own (--keep-own true) does"
        raise ConfigError(f"{rule}, where its method gives clients some")
    named = [k for k, name in owners.items() if client == name] or [k for k in owners if str(client) == str(k)]
    if len(named) != 1:
        raise unknown("client", str(client), owners.values())
    return named[0]


def read_description(folder: Path) -> dict[str, Any]:
    """The content of ``model.json``. Raises RecordError where there is none, or one of another format."""
    insist_on_run(folder)
    if not (folder / FILE).is_file() or not (folder / "final.safetensors").is_file():
        hint = "it has not ended: resume it" if not (folder / "summary.json").is_file() else "run it again"
        raise RecordError(f"the run {str(folder)!r} has no final model and {FILE}; {hint}")
    check_file(folder, FILE)
    content: Row = object_of(folder / FILE, ABOUT)
    if content["format"] != FORMAT:
        raise RecordError(f"{folder / FILE} must be of format {FORMAT}; this fedskew reads no other")
    return content


def _network(
    content: Mapping[str, Any], inputs: Inputs, model: nn.Module | Architecture | None, folder: Path
) -> nn.Module:
    """The untrained network. Raises ConfigError where the file does not say it, or another one is given."""
    if isinstance(model, nn.Module):
        width, head = content.get("projection", 0), content["head"].rpartition(".")[0]
        return models.projected(model, head, width, 0)[0] if width else model
    if model is None:
        named = content["model"]
        if named is None:
            trained = f"the run {str(folder)!r} trained a network of your own, {content['network']}"
            raise ConfigError(f"model must be given: {trained}; use fedskew.load_model(run, model=network) in Python")
        known = MODELS.get(named["name"])
        require(known is not None, "model", f"be one of {', '.join(MODELS)}", named["name"])
        assert known is not None
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in named.items() if n != "name"}
        model = known(**values)
    return models.build(model, inputs.shape, len(inputs.label_names), 0)
