# Two commands for everybody: `make serve` and `make test`. `make help` shows the rest.
# HOST, PORT and MODEL may be given: `PORT=9000 MODEL=path/to/model.gguf make serve`.

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
MODEL ?= smollm2-135m-instruct

VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src kernel -type f -not -name '*.pyc' 2>/dev/null) CMakeLists.txt pyproject.toml README.md
PYTEST := $(BIN)/python -m pytest

.PHONY: serve install dev check test test-long bench-engine bench-gears clean help

serve: $(VENV)/installed ## build, fetch the model once, serve it
	@exec $(BIN)/gearshift serve --host $(HOST) --port $(PORT) --model $(MODEL)

install: $(VENV)/installed ## the package in .venv

dev: $(VENV)/dev ## the package and what its tests need, in .venv

check: $(VENV)/dev ## style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

test: check ## style, types and tests, short cases
	$(PYTEST) -m "not long"

test-long: check ## all tests with full counts and fresh seeds
	GEARSHIFT_TEST_SEED=random $(PYTEST)

bench-engine: $(VENV)/installed ## compare with other engines on this machine; BENCH="--quick" for a first look
	$(BIN)/python -m benchmarks.engine $(BENCH)

bench-gears: $(VENV)/installed ## the gears beside each other, idle and loaded; BENCH="--quick" for a first look
	$(BIN)/python -m benchmarks.gears $(BENCH)

clean: ## remove what was built here; models stay in their cache folder
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .schemathesis

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/python:
	@echo "Making a virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	@$(PYTHON) -m venv $(VENV) || { echo "No venv module: on Debian, apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/installed: $(VENV)/python $(SOURCES)
	@echo "Building the package and its kernel; the first time takes a minute or two"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check .
	@touch $@

$(VENV)/dev: $(VENV)/python $(SOURCES)
	@echo "Building the package and its kernel, with what the tests need"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check ".[dev]"
	@touch $@ $(VENV)/installed
