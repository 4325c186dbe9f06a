# Two commands do everything on a fresh machine: `make serve` and `make test`.
# Everything they install lives in .venv, .node and .peers, except a few system packages (tools/install-system.sh).

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Most tests wait for processes, sockets and timers rather than for the processor.
PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder
CHECKED := src tests examples bench tools check
PATHS = $(wildcard $(CHECKED))

# REPORTS=FOLDER keeps the seconds of each test there, for tools.seconds.
REPORT = $(if $(REPORTS),--junitxml=$(REPORTS)/$@.xml)

# Hundreds of processes are started from the checkout, and each would compile it again.
unexport PYTHONDONTWRITEBYTECODE
# What computes goes behind what waits: both cores stay busy, and who measures time is not starved.
SIDE_BY_SIDE := tools/side_by_side.sh '$(MAKE) -s lint types' '$(MAKE) -s simulation'

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve test check lint types simulation simulation-full others unit coverage test-pythons format docs record bench bench-quick bench-pythons conformance chaos judge record-run outside-check soak fuzz attack ten-minutes campaigns wheel wheel-test release-check lock clean venv runtime system node peers

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: runtime  ## Serve the example server on http://127.0.0.1:8000/mcp
	$(BIN)/limpet serve examples/everything.py:server --http 127.0.0.1:8000

# What is installed here leaves no reason to skip a test: see tests/no_skips.py.
test: export NO_SKIPS = 1
test: system venv node peers  ## Install what the tests need, then lint, types, all tests, wheel
	$(SIDE_BY_SIDE) '$(MAKE) -s wheel' '$(MAKE) -s others'
	tools/wheel_test.sh try

check: venv  ## Lint, types and all tests, with what is already installed
	$(SIDE_BY_SIDE) '$(MAKE) -s others'

simulation: venv  ## Try 250 seeds of each simulated scenario
	$(PYTEST) -n 2 --no-header --timeout 600 $(REPORT) tests/simulation

simulation-full: venv  ## Try 2,000 seeds of each simulated scenario (SIMULATION_FIRST_SEED=0)
	SIMULATION_SEEDS=2000 $(MAKE) -s simulation

others: venv  ## Run all other tests
	$(PYTEST) $(PARALLEL) $(REPORT) --ignore tests/simulation tests

lint: venv  ## Check format and lint
	$(BIN)/ruff format --check $(PATHS)
	$(BIN)/ruff check $(PATHS)

types: venv  ## Check types, strictly, in source and tests; and as users see them (make node first)
	$(BIN)/mypy
	tools/pyright.sh

unit: venv  ## Run the fast tests only
	$(PYTEST) $(PARALLEL) $(wildcard tests/unit tests/properties tests/contracts) $(wildcard tests/test_*.py)

coverage: system node peers  ## Measure lines and branches of all layers, and record them in tests/coverage.json (Python 3.12 or newer)
	tools/coverage.sh

test-pythons:  ## Run the unit, property, contract and client tests with newer Pythons (PYTHONS="3.12 3.13")
	tools/test_pythons.sh $(PYTHONS)

bench-pythons:  ## Measure the main workloads with newer Pythons, without peers (PYTHONS="3.12 3.13")
	tools/test_pythons.sh --bench $(PYTHONS)

format: venv  ## Format, and fix what lint can fix
	$(BIN)/ruff format $(PATHS)
	$(BIN)/ruff check --fix $(PATHS)

docs: venv  ## Write the API reference and the table of options, and build the searchable site into build/site
	$(BIN)/python tools/reference.py
	$(BIN)/python -m tools.options
	$(BIN)/python -m tools.site

record: venv peers  ## Record `make serve` and `limpet demo` for the README (a minute; port 8000 must be free)
	$(BIN)/python -m tools.record

bench: system venv node peers  ## Measure beside the peers, every answer verified; write docs/speed.md (18 minutes)
	$(BIN)/python -m bench

bench-quick: venv  ## Measure the main workloads once, without peers (a minute)
	$(BIN)/python -m bench --quick

conformance: venv node  ## Run the official conformance suites
	$(PYTEST) tests/conformance

campaigns: venv system  ## Break each law on purpose and see the trial find it (minutes)
	$(PYTEST) -m campaign tests
	$(BIN)/python -m tests.bugbank

fuzz: venv  ## Try random bytes against the HTTP server and every parser (SEED=1 MINUTES=1, of each parser)
	$(BIN)/python -m tests.http.fuzz --seed $(or $(SEED),1)
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),1) --seed $(or $(SEED),1)

chaos: venv  ## Put three replicas behind a balancer on trial: the full plan and its report (SEED=1)
	$(BIN)/python -m tests.chaos --full --seed $(or $(SEED),1)

judge: venv  ## Judge the history of a trial again (FILE=docs/proof/redis-store.jsonl.gz)
	$(BIN)/python -m tests.chaos.judge $(FILE)

record-run: venv peers  ## Hold the eight trials of docs/proof.md, and write its table (70 minutes; MINUTES=8 SEED=1)
	$(BIN)/python -m tests.chaos.record --minutes $(or $(MINUTES),8) --seed $(or $(SEED),1)

outside-check: venv  ## Let Porcupine, a linearizability checker in Go, judge the history of a trial (FILE=docs/proof/redis-store.jsonl.gz; needs go)
	$(BIN)/python -m tests.chaos.outside $(FILE)

soak: venv system  ## Look whether anything grows while clients come and go, and draw it (HOURS=0.5 RATE=60 sessions a minute)
	$(BIN)/python -m tests.chaos.soak --hours $(or $(HOURS),0.5) --rate $(or $(RATE),60)

ten-minutes: venv peers  ## Collect a tool of ten minutes with a client that gives up after one, in real time (11 minutes)
	$(BIN)/python -m tools.ten_minutes

attack: venv  ## Measure the memory of a server under attack, against three figures (15 minutes; FIGURES=256)
	$(BIN)/python -m tests.attacks --figures $(or $(FIGURES),256,512,1024)

wheel: venv  ## Build the wheel and install it in an empty environment
	tools/wheel_test.sh install $(BIN)/python

wheel-test: wheel  ## Build the wheel and try it from an empty environment
	tools/wheel_test.sh try

release-check: system venv  ## Do everything of a release in a clone, except the upload (some minutes; PREVIOUS=HEAD~1)
	$(BIN)/python -m tools.release_check $(if $(PREVIOUS),--previous $(PREVIOUS))

lock: venv  ## Write the lock files again (UPGRADE=--upgrade: with the newest versions)
	tools/lock.sh $(UPGRADE)

clean:  ## Remove everything that was built or installed here
	rm -rf .venv .node .peers .pythons dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples bench tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Installation. Each step leaves a stamp and does nothing while the stamp is newer than its cause.

venv: .venv/.dev
runtime: .venv/.runtime

.venv/bin/python:
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tools/install-system.sh python3-venv
	$(PYTHON) -m venv .venv

# Limpet itself is built with what the lock file has: nothing is downloaded that is not in it.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALL_LIMPET := $(INSTALL) --no-deps --no-build-isolation --editable .

.venv/.runtime: pyproject.toml tools/locks/runtime.txt | .venv/bin/python
	$(INSTALL) --require-hashes -r tools/locks/runtime.txt
	$(INSTALL_LIMPET)
	touch $@

.venv/.dev: pyproject.toml tools/locks/dev.txt | .venv/bin/python
	$(INSTALL) --require-hashes -r tools/locks/dev.txt
	$(INSTALL_LIMPET)
	touch .venv/.runtime $@

system:
	tools/install-system.sh

node:
	tools/install-node.sh

peers: venv
	tools/install-peers.sh $(PYTHON)
