# `make quickstart` and `make test` are all a fresh machine needs (Python ≥ 3.11). Both make .venv and re-use it.
# `make quickstart EXTRA=cuda` installs JAX's plugin for NVIDIA GPUs beside the rest, EXTRA=tpu that for TPUs.
PYTHON ?= python3
EXTRA ?=
BIN := .venv/bin
# Tests of a file stay in one process where they can, so that what they share is made once.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
STORE ?= results/local
FIGURES ?= figures
MLPERF ?= ../logging
ALGOPERF ?= ../submissions_algorithms/previous_leaderboards
PUBLISHED := results/local/published
LARGE := results/local/large

# A .venv without a Python that is new enough, or without uv and pip, is made anew.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
UNUSABLE := $(shell { $(BIN)/python -c '$(NEW_ENOUGH)' && { test -x $(BIN)/uv || $(BIN)/python -c 'import pip'; }; } \
  >/dev/null 2>&1 || echo unusable)
define NEW_VENV
@$(PYTHON) -c '$(NEW_ENOUGH)' 2>/dev/null || { \
  version=$$($(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null || echo 'not there'); \
  echo "error: Python 3.11 or newer is needed; $(PYTHON) is $$version: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
  exit 2; }
rm -rf .venv && $(PYTHON) -m venv .venv
endef

.PHONY: unusable help install quickstart first-contact test test-all test-plan test-slurm test-ray test-buckets test-readers test-logs attack check figures notebooks docs page published published-large mlperf algoperf zenodo bench lock clean

.DEFAULT_GOAL := help
help:  ## this list
	@sed -nE "s/^([a-z-]+):.*  ## (.*)/\1 \2/p" $(MAKEFILE_LIST) | while read -r target text; do \
	  printf '%-16s %s\n' "$$target" "$$text"; done

install: .venv/installed $(EXTRA:%=.venv/installed-%)  ## create .venv with everything needed; EXTRA=cuda or EXTRA=tpu adds a plugin

# Without a plugin of JAX's it is on the CPU, whatever else is there.
quickstart: export JAX_PLATFORMS := $(if $(EXTRA)$(wildcard .venv/installed-*),$(JAX_PLATFORMS),cpu)
quickstart: .venv/installed $(EXTRA:%=.venv/installed-%)  ## train small networks, print tables and draw figures, in a few minutes
	$(BIN)/python -m sweeps +experiment=quickstart store=$(STORE) -m
	$(BIN)/python -m sweeps +experiment=alx2022/quickstart store=$(STORE) -m
	$(BIN)/python -m analysis all --store $(STORE) --out $(FIGURES)

# What a GPU or TPU host computes, and how fast, in ten minutes: build/first-contact.json. docs/accelerators.md reads it.
first-contact: .venv/installed $(EXTRA:%=.venv/installed-%)  ## what a GPU or TPU host computes, and how fast: build/first-contact.json
	mkdir -p build
	$(BIN)/python benchmarks/first_contact.py --json build/first-contact.json

# Programs that are not optimized compile in two thirds of the time. `make test-all` tests optimized programs.
test: export XLA_FLAGS := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true
test: check  ## lint, types and tests
	$(PYTEST)

test-all: check  ## lint, types and all tests, also slow ones
	$(PYTEST) -m 'not attack and not plan and not slurm and not ray and not readers and not buckets'

# What the compiler of TPUs makes of the programs; it needs no TPU, and is installed beside the rest.
test-plan: .venv/installed-tpu  ## tests of the TPU compiler, without a TPU
	$(PYTEST) -m plan

# Studies on a SLURM and on a Ray cluster that the tests start on this machine. Debian's package is slurm-wlm.
SLURM_PROGRAMS := slurmctld slurmd munged
test-slurm: .venv/installed  ## tests on a SLURM cluster on this machine
	for program in $(SLURM_PROGRAMS); do command -v $$program > /dev/null || \
	  { apt-get update && apt-get install -y slurm-wlm munge && break; } || exit; done
	$(BIN)/python -m pytest -m slurm tests/launchers

test-ray: .venv/installed-ray  ## tests on a Ray cluster on this machine
	$(BIN)/python -m pytest -m ray tests/launchers

# Stores on servers of buckets that the tests start on this machine. Azurite needs node and npm, Debian's package npm.
test-buckets: .venv/installed-buckets-test build/azurite/installed  ## tests of stores in buckets, on servers on this machine
	$(BIN)/python -m pytest -m 'buckets or not buckets' tests/buckets

AZURITE := 3.35.0
build/azurite/installed:
	mkdir -p build/azurite
	npm install --silent --no-audit --no-fund --prefix build/azurite azurite@$(AZURITE)
	touch $@

# The one-liners of docs/sql.md, each in an environment that has its reader alone: build/readers/NAME.
READERS := datasets mlcroissant duckdb polars pandas fastparquet
test-readers: .venv/installed $(READERS:%=build/readers/%/installed)  ## tests of the readers in docs/sql.md
	$(BIN)/python -m pytest -m readers tests/readers

build/readers/%/installed:
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/readers/$*
	VIRTUAL_ENV=build/readers/$* $(BIN)/uv pip install --quiet $* $(if $(filter pandas mlcroissant,$*),pyarrow)
	touch $@

# Logs as the newest versions of the libraries write them, each in an environment of its own, become what their runs
# printed, and lead to the answer of their closed form. tests/logs holds such logs, and the tests import them. A build of
# PyTorch for the CPU is enough; TORCH=torch takes the newest release, with CUDA.
LOG_WRITERS := tensorboard trainer wandb lightning keras mlflow optuna ray
TORCH := torch==2.13.0
test-logs: .venv/installed $(LOG_WRITERS:%=build/logs/%/installed)  ## tests of logs that the newest loggers write
	rm -rf build/logs/written && mkdir -p build/logs/written
	for script in $(patsubst tests/logs/make/%.py,%,$(wildcard $(LOG_WRITERS:%=tests/logs/make/%_*s.py))); do \
	  out=build/logs/written/$${script%_*}; case $$script in *_answers) out=build/logs/written/answers; esac; \
	  build/logs/$${script%_*}/bin/python tests/logs/make/$$script.py $$out || exit; done
	LOGS=build/logs/written $(BIN)/python -m pytest tests/results/importers/runs/test_logs_of_libraries.py

build/logs/%/installed:
	$(BIN)/python -m venv --clear build/logs/$*
	build/logs/$*/bin/pip install --quiet --disable-pip-version-check $(PACKAGES_$*)
	touch $@

PACKAGES_tensorboard := $(TORCH) tensorboard numpy
PACKAGES_trainer := $(TORCH) transformers accelerate numpy
PACKAGES_wandb := wandb
PACKAGES_lightning := $(TORCH) lightning tensorboard numpy
PACKAGES_keras := keras tensorflow-cpu tensorboard pandas
PACKAGES_mlflow := mlflow
PACKAGES_optuna := optuna pandas
PACKAGES_ray := ray[tune]

# The attack on the store at full size, of which the tests hold a sample: kills, stalls, flips, errors, forgeries.
attack: .venv/installed  ## kill, stall and damage a store, at full size
	$(PYTEST) -m 'attack or not attack' tests/attack

check: .venv/installed  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every picture in README and docs, from the release that ships; docs/figures/pictures.txt says which is which.
figures: .venv/installed  ## the pictures in README and docs
	rm -rf build/figures
	$(BIN)/python -m analysis figures --store results/published --out build/figures
	$(BIN)/python -m analysis figures --store results/published --out build/figures --kind metaparameters \
	  --where 'dataset=digits,model=fully_connected*,optimizer=sgd,schedule=constant'
	$(BIN)/python -m analysis figures --store results/published --out build/figures --name payoff_paper
	$(BIN)/python -m analysis figures --store results/published --out build/figures --name payoff_gpt3
	while read -r name picture; do cp "build/figures/$$picture.png" "docs/figures/$$name.png" || exit; done \
	  < docs/figures/pictures.txt

# What notebooks train is trained on the CPU: a compiler of TPUs that finds none fills their outputs with warnings.
notebooks docs: export JAX_PLATFORMS := $(or $(JAX_PLATFORMS),cpu)

# The notebooks, executed: build/notebooks/*.ipynb
notebooks: .venv/installed  ## the notebooks, executed: build/notebooks
	mkdir -p build/notebooks
	for source in analysis/notebooks/*.py; do $(BIN)/jupytext --quiet --to ipynb \
	  --output build/notebooks/$$(basename $$source .py).ipynb $$source || exit; done
	$(BIN)/jupyter-execute --inplace build/notebooks/*.ipynb

# The documentation: build/docs/index.html; without executing the notebooks: make docs DOCS='-D nb_execution_mode=off'
docs: .venv/installed  ## the documentation: build/docs/index.html
	$(BIN)/sphinx-build -W --keep-going -n $(DOCS) -b html docs build/docs

page: .venv/installed  ## the published data as one page: build/report.html
	$(BIN)/python -m analysis report --store results/published --out build/report.html

# The sweeps behind results/published, and the release itself. Whatever stopped it, the same command goes on where it was.
published: .venv/installed-tpu  ## train and build results/published, about 3.5 hours
	for preset in alx2022/scaling alx2022/solvers alx2022/precision alx2022/tuning \
	  published/noise published/pydoc published/decay published/many published/digits \
	  layouts/quickstart layouts/cores layouts/mesh_tf_bert; do \
	  $(BIN)/python -m sweeps +experiment=$$preset store=$(PUBLISHED) -m || exit; done
	$(BIN)/python -m results verify --store $(PUBLISHED)
	rm -rf results/local/release
	$(BIN)/python -m results export --store $(PUBLISHED) --out results/local/release
	rm -rf results/published && mv results/local/release results/published
	$(BIN)/python -m results verify --store results/published

# As many models as the paper trained; not part of the release.
published-large: .venv/installed  ## a sweep as large as the paper's, not part of the release
	$(BIN)/python -m sweeps +experiment=published/large store=$(LARGE) -m
	$(BIN)/python -m sweeps.status store=$(LARGE)
	$(BIN)/python -m analysis fit --store $(LARGE)

# MLPerf's reference convergence points, from a clone of mlcommons/logging: make mlperf MLPERF=DIR
# results/mlperf is of this commit, the last one of pull request 470 (dlrmv4), 8 August 2026.
MLPERF_COMMIT = 1237f5335a93b70f62e2bad30801373726219617
mlperf: .venv/installed  ## results/mlperf from a clone of mlcommons/logging: MLPERF=DIR
	rm -rf build/mlperf && mkdir -p build/mlperf
	git -C $(MLPERF) archive $(MLPERF_COMMIT) mlperf_logging/rcp_checker | tar x -C build/mlperf
	$(BIN)/python -m results import mlperf-rcp build/mlperf/mlperf_logging/rcp_checker --store build/mlperf/store
	$(BIN)/python -m results export --store build/mlperf/store --out build/mlperf/release
	rm -rf results/mlperf && mv build/mlperf/release results/mlperf
	$(BIN)/python -m results verify --store results/mlperf

# AlgoPerf's public logs as a release, build/algoperf/release: make algoperf ALGOPERF=DIR, which is previous_leaderboards of
# a clone of mlcommons/submissions_algorithms. Apache-2.0, 53 MB; ten minutes.
algoperf: .venv/installed  ## a release of AlgoPerf's public logs: ALGOPERF=DIR
	rm -rf build/algoperf && mkdir -p build/algoperf
	$(BIN)/python -m results import algoperf-logs $(ALGOPERF) --store build/algoperf/store
	$(BIN)/python -m results export --store build/algoperf/store --out build/algoperf/release
	$(BIN)/python -m results verify --store build/algoperf/release

# What a deposit of the release at Zenodo says of it: build/zenodo.json
zenodo: .venv/installed  ## metadata for a deposit at Zenodo: build/zenodo.json
	mkdir -p build
	$(BIN)/python -m results.release.zenodo results/published --out build/zenodo.json

bench: .venv/installed  ## all benchmarks
	$(BIN)/python benchmarks/commands.py
	$(BIN)/python benchmarks/quickstart.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/workers.py
	$(BIN)/python benchmarks/launchers.py
	$(BIN)/python benchmarks/lanes.py
	$(BIN)/python benchmarks/divisions.py
	$(BIN)/python benchmarks/attention.py
	$(BIN)/python benchmarks/stores.py
	$(BIN)/python benchmarks/fits.py
	$(BIN)/python benchmarks/figures.py
	$(BIN)/python benchmarks/input.py
	$(BIN)/python benchmarks/plan.py
	$(BIN)/python benchmarks/plan.py --planning
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks/als.py
	$(BIN)/python benchmarks/als.py --evaluation

# Versions of everything, for every Python and system at once; names and versions only. Those of the plugins agree.
LOCK := uv pip compile --quiet --universal --upgrade --python-version 3.11 --no-header
lock: .venv/installed  ## update the versions in requirements*.lock
	$(BIN)/$(LOCK) --extra dev --output-file requirements.lock pyproject.toml
	for extra in cuda tpu ray buckets-test; do $(BIN)/$(LOCK) --extra $$extra --constraints requirements.lock --no-annotate \
	  --output-file requirements-$$extra.lock pyproject.toml || exit; done

.venv/installed: requirements.lock pyproject.toml $(UNUSABLE)
	$(if $(UNUSABLE),$(NEW_VENV))
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --compile-bytecode --requirements requirements.lock
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --no-deps --editable .
	touch $@

.venv/installed-%: requirements-%.lock .venv/installed
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --requirements $<
	touch $@

clean:  ## remove .venv, figures, build and caches
	rm -rf .venv figures build docs/notebooks docs/commands.md docs/dictionary.md $(addprefix docs/api/,$(addsuffix .md,results workloads harness sweeps analysis)) *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
