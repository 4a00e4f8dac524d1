# make demo    five methods with five seeds on the digits that scikit-learn brings, raw and fitted, and a report to look at
# make test    each behaviour once, in minutes: representative methods, and no attacks or examples of docstrings
# make test-all   all tests that need no special hardware, extra or network: what CI runs
# make test-ray   the tests of the engine ray, which needs the extra of that name; it is installed into the same environment
# make test-hf   the tests of models of transformers and adapters of peft; the extra hf is installed into the same environment
# make test-flower   the tests of fedskew on Flower, in an environment of their own: Flower pins versions that others need newer
# make reference writes the pages of docs/reference that are made from the code, and their pictures
# make docs    the site, into build/docs/html: runs the code of the pages and the gallery; warnings are errors; no network
# make lint    format, lint and types, in seconds
# make check   make lint and make test: what every change must pass
# make mutants plants 200 faults in the library and counts those that the tests notice (MUTANTS_ARGS="--seed 7 --draws 20")
# make attack  attacks it: kills, signals, full disks, flipped bytes, fuzzed commands; a table of what survived
# make bench   fedskew beside other frameworks and bare torch, the same work in turns (BENCH_ARGS="--workloads mnist-lr")
# make bench-peers   the other frameworks' environments, in benchmarks/.envs; make bench says which it misses
# make clean   removes what the others made, but for the environments and your runs/
#
# The first target that needs the environment makes it. PYTHON names the interpreter, VENV the folder, CONSTRAINTS the
# file of versions: `make test VENV=.venv-3.13 PYTHON=python3.13`. notes/developing.md has the commands for the oldest versions.

# What is compiled is kept, wherever the environment says otherwise: the tests start hundreds of commands.
export PYTHONDONTWRITEBYTECODE :=

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

SUPPORTED := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c '$(SUPPORTED)' 2>/dev/null && { echo $$p; break; }; done)

VENV ?= .venv
# The versions that pip installs. Empty: the newest that there are.
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq $(addprefix -c ,$(CONSTRAINTS))
NEEDS := pyproject.toml papers/pyproject.toml $(CONSTRAINTS)
# Tests with these markers need minutes, an extra, a device or the network: name them yourself, as in `pytest -m slow`.
MARKERS := not slow and not ray and not flower and not flwr_datasets and not gpu and not network and not browser
# The tests of `make test`; those with this marker repeat, for more methods or harder, what these tests show.
QUICK := $(MARKERS) and not thorough
PYTEST_ARGS ?=
MUTANTS_ARGS ?=
ATTACK_ARGS ?=
BENCH_ARGS ?=
DOCS_ARGS ?=

DEMO := fedavg feddyn fedla fedga scaffold --data digits --partition dirichlet --partition.alpha 0.1 --clients 20 --cohort 5 \
	--rounds 30 --epochs 5 --batch-size 16 --seeds 0-4 --fitted --store demo/store --out demo

.PHONY: help env demo test test-all test-ray test-ray-env test-hf test-flower test-flower-env lint check reference docs mutants attack bench bench-peers clean
help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

$(BIN)/python:
	@python='$(PYTHON)'; \
	"$${python:-none}" -c '$(SUPPORTED)' 2>/dev/null || { \
		echo "make: PYTHON must be Python 3.11 or later with venv; got '$$python'; try make PYTHON=python3.12" >&2; exit 1; }; \
	echo "making $(VENV) with $$python (torch comes along: this takes minutes the first time)"; \
	rm -rf '$(VENV)'; "$$python" -m venv '$(VENV)' || { rm -rf '$(VENV)'; exit 1; }

# A stamp says which extras an environment has. That of dev covers plot, so the demo after the tests installs nothing.
# The papers are a plug-in of their own, beside each of them.
$(VENV)/.plot: $(NEEDS) $(BIN)/python
	@$(PIP) -e '.[plot,report]' -e ./papers
	@touch $@

$(VENV)/.dev: $(NEEDS) $(BIN)/python
	@$(PIP) -e '.[dev]' -e ./papers
	@touch $(VENV)/.plot $@

env: $(VENV)/.dev
	@:

$(VENV)/.hf: $(NEEDS) $(VENV)/.dev
	@$(PIP) -e '.[dev,hf]' -e ./papers
	@touch $(VENV)/.plot $(VENV)/.dev $@

$(VENV)/.ray: $(NEEDS) $(VENV)/.dev
	@$(PIP) -e '.[dev,ray]' -e ./papers
	@touch $(VENV)/.plot $(VENV)/.dev $@

# Flower pins ray, rich and packaging, so it shares neither the environment nor its versions.
FLOWER := .venv-flower
$(FLOWER)/.flower: pyproject.toml constraints-flower.txt
	@test -x $(FLOWER)/bin/python || $(MAKE) --no-print-directory VENV=$(FLOWER) CONSTRAINTS= $(FLOWER)/bin/python
	@$(FLOWER)/bin/python -m pip --disable-pip-version-check install -qq -c constraints-flower.txt -e '.[flower,report,hf]' \
		'pytest>=8' 'pytest-xdist>=3.6' 'hypothesis>=6.100'
	@touch $@

demo: $(VENV)/.plot
	@(set -x; $(BIN)/fedskew compare $(DEMO))
	@echo "the report is demo/report.html: open it in a browser"

test: $(VENV)/.dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m '$(QUICK)' $(PYTEST_ARGS)

test-all: $(VENV)/.dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m '$(MARKERS)' --hypothesis-profile thorough $(PYTEST_ARGS)

test-ray-env: $(VENV)/.ray
	@:

test-ray: $(VENV)/.ray
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 -m 'ray and not slow' $(PYTEST_ARGS) tests/engines/ray tests/studies

test-hf: $(VENV)/.hf
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 $(PYTEST_ARGS) tests/models/test_pretrained.py tests/methods/test_adapters.py

test-flower-env: $(FLOWER)/.flower
	@:

test-flower: $(FLOWER)/.flower
	@OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 $(FLOWER)/bin/python -m pytest -n 0 -m 'flower and not slow' $(PYTEST_ARGS) \
		tests/flower tests/cli/test_flower.py tests/attack/test_flower_nodes.py tests/attack/test_flower_lies.py

lint: $(VENV)/.dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy

check: lint test

$(VENV)/.docs: $(NEEDS) $(BIN)/python
	@$(PIP) -e '.[docs]' -e ./papers
	@touch $(VENV)/.plot $@

docs: $(VENV)/.docs
	@OMP_NUM_THREADS=1 $(BIN)/python scripts/docs.py $(DOCS_ARGS)

reference: $(VENV)/.plot
	@$(BIN)/python scripts/reference.py

mutants: $(VENV)/.dev
	@OMP_NUM_THREADS=1 $(BIN)/python scripts/mutants.py $(MUTANTS_ARGS)

attack: $(VENV)/.dev
	@$(BIN)/python scripts/attack.py $(ATTACK_ARGS)

bench: $(VENV)/.plot
	@$(BIN)/python benchmarks/speed/bench.py $(BENCH_ARGS)

# The requirements of the other frameworks contradict one another. A build of torch for CUDA is not called ready.
ENVS := benchmarks/.envs
$(ENVS)/%/installed.txt: benchmarks/speed/requirements/%.txt | $(BIN)/python
	@$(BIN)/python -m venv $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check install -qq -r $<
	@$(@D)/bin/python -c 'import torch; v = torch.__version__; assert v.endswith("+cpu"), f"torch must be a CPU build; got {v}"'
	@cp $< $@

bench-peers: $(patsubst benchmarks/speed/requirements/%.txt,$(ENVS)/%/installed.txt,$(wildcard benchmarks/speed/requirements/*.txt))

clean:
	@rm -rf build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . \( -name .git -o -name '.venv*' \) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
