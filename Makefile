# Everything starts here.  Each target sets up what it needs: a virtual environment in .venv, uv in it, all packages.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PROJECTS := pyproject.toml constraints.txt core/pyproject.toml $(wildcard plugins/*/*/pyproject.toml)
MEMBERS := core $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/*/pyproject.toml))
BENCHMARKS := $(basename $(notdir $(shell grep -l __main__ benchmarks/*.py)))
T ?=
# Most tests wait for disks, processes and servers; a file's tests stay together, and in order.
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile
B ?= roundtrip

# Byte code is written, whatever the caller's environment says: every runner and command is a process of its own.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup engines demo test test-slow check format bench known-benchmark docs clean

help:  ## Show the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Make the virtual environment and install everything

$(STAMP): $(PROJECTS) scripts/setup.sh
	@PYTHON=$(PYTHON) VENV=$(VENV) bash scripts/setup.sh $(MEMBERS)
	@touch $(STAMP)

engines: $(STAMP)  ## Install the servers that tests talk to, below .engines/
	@$(BIN)/python scripts/engines.py

demo: $(STAMP)  ## A first conversation, through every real part
	@$(BIN)/python scripts/demo.py

test: engines  ## Run the tests (T="-k words" narrows them down, WORKERS=0 runs one by one)
	@$(PYTEST) -m "not slow" $(T)

test-slow: engines  ## Run all tests, the slow ones too
	@$(PYTEST) $(T)

check: $(STAMP)  ## ruff, mypy --strict, import-linter, docs
	@bash scripts/check.sh

format: $(STAMP)  ## Let ruff mend what it can
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: known-benchmark $(STAMP)  ## Run one benchmark: make bench B=roundtrip (B=? names them all)
	@$(BIN)/python -m benchmarks.$(B)

known-benchmark:
	@case " $(BENCHMARKS) " in *" $(B) "*) ;; *) echo "no benchmark is called '$(B)'; there are: $(BENCHMARKS)" >&2; exit 2;; esac

docs: $(STAMP)  ## Write the generated pages again
	@$(BIN)/python scripts/docs.py

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .engines .mypy_cache .ruff_cache .hypothesis .import_linter_cache
