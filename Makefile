# Folkmoot: what a developer does. `make run` and `make test` each work alone in a fresh clone.
# Needs Python >= 3.11 with venv and pip, make, and (for speed) a C compiler. Java comes from PyPI where none is found.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Set in many images of containers. Tests start hundreds of processes: each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# The compiled tree before the sources: see CONTRIBUTING.md, "The compiled half".
NATIVE := PYTHONPATH=$(CURDIR)/build/native
SOURCES := PYTHONPATH=$(CURDIR)/src
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
CORES ?= $(shell nproc 2>/dev/null || echo 2)
# One more than cores: many tests wait for processes.
WORKERS ?= $(shell echo $$(($(CORES) + 1)))
# The pure half waits for nothing.
PURE_PYTEST = $(BIN)/python -m pytest -n $(CORES) --dist loadgroup -q --pure-half
SEEDS ?= 200
STEPS ?= 300
NODES ?= 5
FROM ?= 1
ARGS ?=
SOAK_S ?= 7200

.PHONY: help run test test-pure quick soak check format build classes prepared lock bench sim torture clients clean distclean

help:  ## Say what can be made
	@grep -hE '^[a-z.-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

# A stamp inside, because a folder's own time says nothing; second runs do not reinstall. pip would spend half of its time
# on byte code of modules that nobody imports: Python writes it at the first import.
.venv: $(VENV)/.installed  ## Make the virtual environment with all that is needed

$(VENV)/.installed: pyproject.toml requirements-dev.lock
	@echo "== environment in $(VENV) (the first time downloads about 800 MB, most of it Spark)"
	@test -n "$(PYTHON)" || { echo "no Python found: install Python >= 3.11, or say PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python >= 3.11 is needed, $(PYTHON) is {v[0]}.{v[1]}: say PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "cannot make a virtual environment: Debian and Ubuntu have it in the package python3-venv"; exit 1; }
	@echo "== 1/2 packages, of the versions and with the hashes of requirements-dev.lock"
	@$(BIN)/python -m pip install --disable-pip-version-check --no-compile --require-hashes --requirement requirements-dev.lock
	@echo "== 2/2 Folkmoot itself, editable"
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# uv has an environment of its own, which only this target needs.
lock:  ## Write requirements-dev.lock anew after a change of pyproject.toml; ARGS=--upgrade takes the newest versions
	@test -x build/lock/bin/uv || { $(PYTHON) -m venv build/lock && build/lock/bin/python -m pip install --disable-pip-version-check --quiet uv; }
	@build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes \
		--no-emit-package folkmoot --custom-compile-command 'make lock' --output-file requirements-dev.lock $(ARGS) pyproject.toml

build: .venv  ## Compile the pure half into build/native (an unchanged tree is not compiled again)
	@$(BIN)/python scripts/native.py

# Both use one core most of the time.
prepared: .venv
	@$(MAKE) -j2 build classes

classes: .venv  ## Store Spark's classes in .venv, so that Spark starts faster
	@$(SOURCES) $(BIN)/python -m folkmoot pipeline prepare

run: prepared  ## The demonstration: flights of New York through the broker into Delta tables, with kills; ARGS=--full for the year
	@$(NATIVE) $(BIN)/python -m folkmoot.demo $(ARGS)

test: prepared clients  ## All tests but those of `make soak`, compiled and interpreted; ARGS choose: ARGS="tests/mqtt -k topic"
	@$(MAKE) test-pure
	@echo "== tests, compiled"
	@$(NATIVE) $(PYTEST) --durations=25 --durations-min=5 $(ARGS)

test-pure: .venv  ## The tests of the pure half, interpreted; ARGS choose
	@echo "== tests of the pure half, interpreted"
	@$(SOURCES) $(PURE_PYTEST) $(ARGS)

quick: .venv  ## While working: the pure half interpreted and what has changed, changed modules first; under 90 seconds
	@$(SOURCES) $(PURE_PYTEST) --inner-loop $(ARGS)

soak: export FOLKMOOT_SOAK := 1
soak: prepared clients  ## Every test, with all seeds, compiled and interpreted (hours); ARGS choose
	@$(MAKE) test-pure
	@echo "== tests, compiled"
	@$(NATIVE) $(PYTEST) --session-timeout=$(SOAK_S) --durations=25 --durations-min=5 $(ARGS)

# Every step runs, so that one look shows all there is to mend.
check: .venv  ## Format, lint, types, import rules, generated pages
	@failed=""; \
	step() { name="$$1"; echo "== $$name"; shift; "$$@" || failed="$$failed $$name"; }; \
	imports() { report=$$($(SOURCES) $(BIN)/lint-imports --no-cache 2>&1) || { echo "$$report" | grep -v '[═║╔╚]'; return 1; }; }; \
	step format $(BIN)/ruff format --quiet --check .; \
	step lint $(BIN)/ruff check --quiet .; \
	step types $(BIN)/mypy --no-error-summary src tests scripts $(wildcard benchmarks examples); \
	step imports imports; \
	step tidy env $(SOURCES) $(BIN)/python -m pytest -q tests/tidy tests/docs tests/spec/test_coverage.py; \
	test -z "$$failed" || { echo "failed:$$failed (make format mends the format)"; exit 1; }

format: .venv  ## Format the code and mend what the linter can mend
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

bench: build clients  ## Measure against Mosquitto; ARGS are passed on
	@$(NATIVE) $(BIN)/python benchmarks/run.py $(ARGS)

sim: build  ## Simulate many clusters with all faults: FROM=1 SEEDS=200 NODES=5 STEPS=300 ARGS=--marks; Ctrl-C tells what it has
	@$(NATIVE) $(BIN)/python -m folkmoot simulate --mix --nodes $(NODES) --from $(FROM) --seeds $(SEEDS) --steps $(STEPS) \
		--jobs $(CORES) $(ARGS)

torture: prepared  ## Rounds of kill -9 of nodes, executors and the driver of a pipeline, then gaps and duplicates are counted; ARGS are passed on
	@$(NATIVE) $(BIN)/python -m folkmoot.torture $(ARGS)

clients:  ## Install other people's MQTT clients for the tests where we may (root on Debian, npm)
	@scripts/clients

clean:  ## Remove what is made, except the environment
	rm -rf build dist run .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## Remove the environment too
	rm -rf $(VENV) node_modules
