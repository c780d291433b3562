# Everything works from a bare checkout with Python >= 3.11 and pip.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test test-slow lint bench clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/installed  ## Fit, store, reload and apply a correction on simulated data (seconds)
	$(BIN)/python examples/demo.py

test: .venv/installed lint  ## Lint, type-check and run the test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: .venv/installed  ## The tests that take longer
	$(BIN)/python -m pytest -m slow

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed  ## Speed as ratios against the physical work (docs/performance.md)
	$(BIN)/python benchmarks/run.py

clean:  ## Remove the environment and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python tools/mend_torchaudio.py
	touch $@
