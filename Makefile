# `make quickstart` and `make test` are all a fresh machine needs (Python ≥ 3.11). Both make .venv and re-use it.
PYTHON ?= python3
BIN := .venv/bin
STORE ?= results/local
FIGURES ?= figures

.PHONY: quickstart test test-all check bench lock clean

quickstart: .venv/installed
	$(BIN)/python -m sweeps +experiment=quickstart store=$(STORE) -m
	$(BIN)/python -m sweeps +experiment=alx2022/quickstart store=$(STORE) -m
	$(BIN)/python -m analysis epochs --store $(STORE)
	$(BIN)/python -m analysis steps --store $(STORE)
	$(BIN)/python -m analysis fit --store $(STORE)
	$(BIN)/python -m analysis figures --store $(STORE) --out $(FIGURES)

test: check
	$(BIN)/python -m pytest -n 2

test-all: check
	$(BIN)/python -m pytest -n 2 -m 'slow or not slow'

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/workers.py
	$(BIN)/python benchmarks/lanes.py
	$(BIN)/python benchmarks/results.py
	$(BIN)/python benchmarks/fits.py
	$(BIN)/python benchmarks/figures.py
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks/als.py

# Versions of everything, for every Python and system at once; names and versions only.
lock: .venv/installed
	$(BIN)/uv pip compile --quiet --universal --upgrade --python-version 3.11 --extra dev --no-header \
	  --output-file requirements.lock pyproject.toml

.venv/installed: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --requirements requirements.lock
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --no-deps --editable .
	touch $@

clean:
	rm -rf .venv figures build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
