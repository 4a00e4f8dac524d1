# make demo    FedAvg, FedLA and FedBal on the digits that scikit-learn brings, and a picture of the three
# make test    the tests that need no special hardware, extra or network
# make check   lint, format, types and those tests
# make mutants plants 200 faults in the library and counts those that the tests notice (MUTANTS_ARGS="--seed 7 --draws 20")
# make bench   fedskew beside other frameworks and bare torch, the same work in turns (BENCH_ARGS="--workloads mnist-lr")
# make bench-peers   the other frameworks' environments, in benchmarks/.envs; make bench says which it misses
# make clean   removes what the others made, but for the environment .venv and your runs/
#
# The environment is made in .venv by the first target that needs it, from constraints.txt. PYTHON names the interpreter.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

SUPPORTED := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(SUPPORTED)' 2>/dev/null && { echo $$p; break; }; done)

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
NEEDS := pyproject.toml constraints.txt
# Tests with these markers need minutes, an extra, a device or the network: name them yourself, as in `pytest -m slow`.
MARKERS := not slow and not ray and not flower and not gpu and not network and not browser
PYTEST_ARGS ?=
MUTANTS_ARGS ?=
BENCH_ARGS ?=

DEMO_METHODS := fedavg fedla fedbal
DEMO_ARGS := --data digits --partition dirichlet --partition.alpha 0.1 --clients 20 --cohort 5 --rounds 60 --epochs 5 --batch-size 16

.PHONY: help env demo test check mutants bench bench-peers clean
help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

$(BIN)/python:
	@python='$(PYTHON)'; \
	"$${python:-none}" -c '$(SUPPORTED)' 2>/dev/null || { \
		echo "make: PYTHON must be Python 3.11 to 3.13 with venv; got '$$python'; try make PYTHON=python3.12" >&2; exit 1; }; \
	echo "making .venv with $$python (torch comes along: this takes minutes the first time)"; \
	rm -rf .venv; "$$python" -m venv .venv || { rm -rf .venv; exit 1; }

# A stamp says which extras an environment has. That of dev covers plot, so the demo after the tests installs nothing.
.venv/.plot: $(NEEDS) $(BIN)/python
	@$(PIP) -c constraints.txt -e '.[plot]'
	@touch $@

.venv/.dev: $(NEEDS) $(BIN)/python
	@$(PIP) -c constraints.txt -e '.[dev]'
	@touch .venv/.plot $@

env: .venv/.dev
	@:

demo: .venv/.plot
	@for method in $(DEMO_METHODS); do \
		rm -rf "demo/$$method"; \
		(set -x; $(BIN)/fedskew run "$$method" $(DEMO_ARGS) --out "demo/$$method"); \
	done
	@(set -x; $(BIN)/fedskew plot demo/)
	@echo "the comparison is demo/comparison.png"

test: .venv/.dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m '$(MARKERS)' $(PYTEST_ARGS)

check:
	@scripts/check

mutants: .venv/.dev
	@OMP_NUM_THREADS=1 $(BIN)/python scripts/mutants.py $(MUTANTS_ARGS)

bench: .venv/.plot
	@$(BIN)/python benchmarks/speed/bench.py $(BENCH_ARGS)

bench-peers: .venv/.plot
	@$(BIN)/python benchmarks/speed/bench.py --install

clean:
	@rm -rf build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . \( -name .git -o -name '.venv*' \) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
