# Two commands: `make site` builds the reading room (no torch), `make test` runs everything that CI runs.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

export HF_HUB_OFFLINE = 1
export OMP_NUM_THREADS ?= 2

.PHONY: help site serve test zoo check lint conform proofs proofs-cuda bundle mutants fuzz bench screenshots clean

help:
	@echo "make site     make the environment, fetch the pins, index them, build the site"
	@echo "make serve    the same, then serve it and rebuild while readings change"
	@echo "make test     the full environment, then all that CI runs"
	@echo "make check    the fast part: lint, types, tests that take no references (under 3 minutes)"
	@echo "make zoo      user files with known deviations, each through a whole diff (half an hour)"
	@echo "make proofs   run every contract and record the proofs of this machine's CPU"
	@echo "make mutants  small faults put into minimal/ one at a time: the contracts must see them"
	@echo "make proofs-cuda  the same on a GPU, in four dtypes; then the tests that need one"
	@echo "make bundle   a tarball that does that on a GPU machine without network"
	@echo "make fuzz     about half a million inputs that nobody wrote, against what the index promises (half an hour)"
	@echo "make screenshots  the pictures of the README, from the built site"
	@echo "make bench    the tables of benchmarks/"

$(VENV)/.base:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.site: requirements/site.in requirements/lock.txt pyproject.toml | $(VENV)/.base
	$(PIP) -r requirements/site.in -c requirements/lock.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.test: requirements/test.in requirements/test-no-deps.in requirements/lock.txt | $(VENV)/.site
	$(PIP) -r requirements/test.in -c requirements/lock.txt
	$(PIP) --no-deps -r requirements/test-no-deps.in
	touch $@

site: $(VENV)/.site
	$(BIN)/annotator fetch
	$(BIN)/annotator index
	$(BIN)/annotator build

serve: site
	$(BIN)/annotator serve

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(VENV)/.test lint
	$(BIN)/annotator fetch
	$(BIN)/annotator index
	$(BIN)/annotator conform --jobs 2
	$(BIN)/annotator build
	$(BIN)/annotator check
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not zoo"

zoo: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 tests/contracts/test_zoo.py

check: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not zoo and not network and not cuda"

conform: $(VENV)/.test
	$(BIN)/annotator conform --jobs 2

proofs: $(VENV)/.test
	$(BIN)/annotator conform --jobs 2 --record
	$(BIN)/annotator conform --power --record

proofs-cuda: $(VENV)/.test
	$(BIN)/annotator conform --device cuda --record
	$(BIN)/python -m pytest -m cuda

bundle: $(VENV)/.test
	$(BIN)/python bundle/build.py

mutants: $(VENV)/.test
	$(BIN)/annotator fetch
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants --jobs 2

bench: $(VENV)/.test
	$(PIP) -r requirements/bench.in -c requirements/lock.txt
	$(BIN)/python benchmarks/index.py --slow trl
	$(BIN)/python benchmarks/resolution.py
	$(BIN)/python benchmarks/runs.py
	$(BIN)/python benchmarks/site.py

fuzz: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --inputs 100000

screenshots: $(VENV)/.test
	$(BIN)/python -m tests.site.screenshots

clean:
	rm -rf $(VENV) site dist build vendored_refs/index.sqlite*
