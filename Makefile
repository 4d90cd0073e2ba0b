# Everything from a fresh clone: `make demo` and `make test` need Python 3.11+ and git, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The bench compares with pandas at this many events.
EVENTS ?= 10000000
# Options of the fuzzer and the soak test: make fuzz CASES=1000 SEED=7, make fuzz REPLAY=graph-0-1234, make soak MINUTES=1
CASES ?= 20000
SEED ?= 0
MINUTES ?= 30
# Containers often forbid it, and then every process that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test quick test-all test-docs test-browser check docs page bench fuzz sanitize soak format clean
.DEFAULT_GOAL := help

help:            ## Show this list.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: $(VENV)/.user      ## Set up, then learn from 12 snapshots of the UCI messages and predict the 13th.
	$(BIN)/dysat info uci
	@rm -rf demo-run
	$(BIN)/dysat fit uci --out demo-run

test: $(VENV)/.developer     ## Set up, then run all checks, build the docs, and run all but the slow tests (minutes).
	@$(MAKE) --no-print-directory -j3 check docs quick

quick: $(VENV)/.developer    ## Run all but the slow tests.
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --durations=25

test-all: $(VENV)/.developer  ## The same with the slow tests.
	@$(MAKE) --no-print-directory -j2 check docs
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-docs: docs              ## Build the docs, then run all but the slow code blocks of the README and the guides.
	$(BIN)/python -m pytest -m "not slow" tests/docs

check: $(VENV)/.developer    ## Lint, format, types, and the direction of imports.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

sanitize: $(VENV)/.developer  ## Run everything that calls the C code with the address and undefined-behaviour sanitizers.
	$(BIN)/python tests/fault/sanitize.py

docs: $(VENV)/.developer     ## Build the documentation site into site/, warnings as errors.
	$(BIN)/python -m sphinx -q -W --keep-going -d .sphinx docs site

test-browser: $(VENV)/.developer  ## Open the page of a run in a real browser, slow tests included; installs one if there is none.
	@$(BIN)/python -c 'import sys; sys.path.insert(0, "tests/support"); from browsing import browser_file; sys.exit(not browser_file())' \
		|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -y chromium; } \
		|| $(BIN)/python -m playwright install chromium \
		|| { echo "no browser: install Chromium (Debian: apt install chromium), or set DYSAT_BROWSER to one" >&2; exit 1; }
	$(BIN)/python -m pytest -n 0 tests/browser

page:            ## Build the template of the page of a run from web/ (needs node 20); dysat itself needs no node.
	cd web && npm ci --silent && npm run --silent build

bench: $(VENV)/.developer    ## Time reading and building against pandas; writes results/ and docs/performance.md.
	$(BIN)/python benchmarks/events.py --events $(EVENTS)

fuzz: $(VENV)/.developer     ## Feed hostile files and command lines to dysat: 20,000 cases, ten minutes on two cores.
	$(BIN)/python tests/fault/fuzz.py --cases $(CASES) --seed $(SEED) $(if $(REPLAY),--replay $(REPLAY))

soak: $(VENV)/.developer     ## Follow a folder for half an hour under kills, partial files, clock jumps and a full disk.
	$(BIN)/python tests/fault/soak.py --minutes $(MINUTES) --seed $(SEED)

format: $(VENV)/.developer   ## Put the code in the house's format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:           ## Remove what these commands made.
	rm -rf $(VENV) site .sphinx demo-run bench-data fuzz-failures .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "dysat needs Python 3.11 or newer; say which with: make PYTHON=python3.12 demo" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e '.[datasets]'
	@touch $@

$(VENV)/.developer: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@
