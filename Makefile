# Needs make and Python 3.11 or newer, nothing else. `make` lists the targets.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3.13 python3.12 python3.11 python3
LOCK_FLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo test test-all test-newest lint types docker-lint docs check lock snapshot reference clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/.demo ## make .venv with what is needed to run

setup-dev: $(VENV)/.dev ## the same, and what is needed to work on the code

demo: $(VENV)/.demo ## evaluate a small model offline, into a fresh build/demo
	rm -rf build/demo
	$(BIN)/harness run --model minilm --suite stdlib --results build/demo/results --cache build/demo/cache

# One worker more than cores, since many tests wait for processes; ARGS goes to pytest and may name a file
# or one's own -m. Tests start some hundred processes: without files of byte code each would compile the
# project anew.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q -n $(WORKERS) --dist worksteal

test: $(VENV)/.dev ## run the tests but the slow ones
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(VENV)/.dev ## run all tests, kill loops, simulations and the browser among them
	$(PYTEST) $(ARGS)

# In an environment of its own, without PyLate.
NEWEST := build/newest
NEWEST_TESTS := tests/harness/encoder tests/suites tests/finetune

test-newest: $(NEWEST)/.installed ## run the tests of encoder, suites and trainings with the newest libraries
	PYTHONDONTWRITEBYTECODE= $(NEWEST)/bin/pytest -q -n $(WORKERS) --dist worksteal -m "not slow" $(NEWEST_TESTS) $(ARGS)

$(NEWEST)/.installed: requirements/newest.txt pyproject.toml | $(VENV)/.python
	@$(BIN)/python -m venv --clear $(NEWEST)
	@$(NEWEST)/bin/python requirements/install.py requirements/newest.txt
	@touch $@

lint: $(VENV)/.dev docker-lint ## check style, format and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.dev ## check types
	$(BIN)/mypy

docker-lint: $(VENV)/.dev ## check the images, the compose file and the files for clusters
	$(BIN)/hadolint docker/Dockerfile.*
	$(BIN)/yamllint --strict --config-file docker/.yamllint docker
	$(BIN)/shellcheck --severity=style docker/cluster/slurm.sh

docs: build/docs-env/.installed ## make the documents as a site in build/docs, and check their links
	NO_MKDOCS_2_WARNING=1 build/docs-env/bin/mkdocs build --quiet

build/docs-env/.installed: requirements/docs.txt | $(VENV)/.python
	@$(BIN)/python -m venv --clear build/docs-env
	@build/docs-env/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: \
	  --requirement requirements/docs.txt
	@touch $@

check: lint types test ## lint, types, test

# Keeps what is locked where it still fits; LOCK_FLAGS=--upgrade takes the newest.
lock: ## make requirements/*.txt from pyproject.toml (needs uv)
	@uv=$$(command -v $(BIN)/uv || command -v uv); \
	test -n "$$uv" || { echo "uv is missing: $(BIN)/pip install uv" >&2; exit 1; }; \
	lock() { \
	  echo "requirements/$$1.txt"; out=requirements/$$1.txt; shift; \
	  "$$uv" pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --no-build \
	    --generate-hashes --no-annotate --custom-compile-command "make lock" $(LOCK_FLAGS) "$$@" \
	    --output-file $$out; \
	}; \
	lock demo pyproject.toml --group build --extra demo --extra colbert && \
	lock cluster pyproject.toml --group build --extra demo --extra colbert --extra ray --extra slurm --extra s3 --constraints requirements/demo.txt && \
	lock dev pyproject.toml --group build --extra demo --extra colbert --extra dev --extra ray --extra slurm --extra s3 --constraints requirements/cluster.txt && \
	lock newest pyproject.toml --group build --extra demo --extra dev && \
	lock docs --group docs --constraints requirements/dev.txt && \
	lock site --group site --constraints requirements/demo.txt

snapshot: $(VENV)/.demo ## make the snapshot of mteb's task metadata
	$(BIN)/python -m suites._mteb.make_snapshot

reference: $(VENV)/.demo ## make the reference records
	HARNESS="$(CURDIR)/$(BIN)/harness" sh results/make_reference.sh

clean: ## remove what was built; keeps .venv and the results
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find harness finetune suites leaderboard tests -type d -name __pycache__ -prune -exec rm -rf {} +

# One .venv for everything: dev.txt holds demo.txt, in the same versions. The empty files say
# which lock was installed last.

$(VENV)/.demo: requirements/demo.txt pyproject.toml | $(VENV)/.python
	@$(BIN)/python requirements/install.py requirements/demo.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt requirements/demo.txt pyproject.toml | $(VENV)/.python
	@$(BIN)/python requirements/install.py requirements/dev.txt
	@touch $(VENV)/.demo $@

# An environment that is there already is kept if its Python is new enough and has pip.
$(VENV)/.python:
	@new_enough='import sys; sys.exit(sys.version_info < (3, 11))'; \
	if $(BIN)/python -c "import pip; $$new_enough" 2>/dev/null; then touch $@; exit 0; fi; \
	for python in $(PYTHON) none; do \
	  "$$python" -c "$$new_enough" 2>/dev/null && break; \
	done; \
	if [ "$$python" = none ]; then \
	  echo "No Python 3.11 or newer among: $(PYTHON). Install one, or say make PYTHON=/path/to/python." >&2; \
	  exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$python has no venv module. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
	  exit 1; \
	fi; \
	"$$python" -m venv --clear $(VENV) && touch $@
