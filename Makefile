# Two commands do everything on a fresh machine: `make serve` and `make test`.
# Everything they install lives in .venv, .node and .peers, except a few system packages (tools/install-system.sh).

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n 2 --dist loadfile
CHECKED := src tests examples bench tools
PATHS = $(wildcard $(CHECKED))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve test check lint types unit format bench conformance chaos campaigns wheel-test clean venv runtime system node peers

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: runtime  ## Serve the example server on http://127.0.0.1:8000/mcp
	$(BIN)/holdfast serve examples/everything.py:server --http 127.0.0.1:8000

test: system venv node peers check wheel-test  ## Install what the tests need, then lint, types, all tests, wheel

check: lint types  ## Lint, types and all tests, with what is already installed
	$(PYTEST) $(PARALLEL) tests

lint: venv  ## Check format and lint
	$(BIN)/ruff format --check $(PATHS)
	$(BIN)/ruff check $(PATHS)

types: venv  ## Check types, strictly, in source and tests
	$(BIN)/mypy

unit: venv  ## Run the fast tests only
	$(PYTEST) $(PARALLEL) $(wildcard tests/unit tests/properties tests/contracts) $(wildcard tests/test_*.py)

format: venv  ## Format, and mend what lint can mend
	$(BIN)/ruff format $(PATHS)
	$(BIN)/ruff check --fix $(PATHS)

bench: venv  ## Measure against the bare limit, every answer verified
	$(BIN)/python -m bench

conformance: venv node  ## Run the official conformance suites
	$(PYTEST) tests/conformance

campaigns: venv system  ## Break each law on purpose and see the trial find it (minutes)
	$(PYTEST) -m campaign tests

chaos: venv  ## Put three replicas behind a balancer on trial: the full plan and its report (SEED=1)
	$(BIN)/python -m tests.chaos --full --seed $(or $(SEED),1)

wheel-test: venv  ## Build the wheel and try it from an empty environment
	tools/wheel_test.sh $(BIN)/python

clean:  ## Remove everything that was built or installed here
	rm -rf .venv .node .peers dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples bench tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Installation. Each step leaves a stamp and does nothing while the stamp is newer than its cause.

venv: .venv/.dev
runtime: .venv/.runtime

.venv/bin/python:
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tools/install-system.sh python3-venv
	$(PYTHON) -m venv .venv

.venv/.runtime: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch .venv/.runtime $@

system:
	tools/install-system.sh

node:
	tools/install-node.sh

peers: venv
	tools/install-peers.sh $(PYTHON)
