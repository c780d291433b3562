# Everything works from a bare checkout with Python >= 3.11 and pip.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test test-slow test-lowest test-packages chaos mutants lint bench docs clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/cli  ## One case from a file to a report and a map (seconds; before it, once, a minute of installation)
	$(BIN)/mgpa demo --out mgpa-demo

test: .venv/installed lint  ## Lint, type-check and run the test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: .venv/installed  ## The tests that take longer
	$(BIN)/python -m pytest -m slow

test-lowest: .venv-lowest/installed .venv-lowest-core/installed  ## The test suite with the lowest version of everything that pyproject.toml declares
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n auto --dist worksteal -m "not slow"
	OMP_NUM_THREADS=1 .venv-lowest-core/bin/python -m pytest -n auto --dist worksteal -m "not slow" tests/core tests/maps --ignore tests/core/test_import.py

test-packages:  ## Build the wheel and the source archive; install each on its own and use it
	rm -rf build/packages dist
	$(PYTHON) -m venv build/packages/tools
	build/packages/tools/bin/python -m pip install --quiet build
	build/packages/tools/bin/python -m build --outdir dist .
	PYTHON=$(PYTHON) tools/try_package.sh dist/*.whl
	PYTHON=$(PYTHON) tools/try_package.sh dist/*.tar.gz

chaos: .venv/installed  ## Kill commands at random moments; nothing is lost (minutes; CHAOS="--kills N --seed S")
	$(BIN)/python tools/chaos.py $(CHAOS)

mutants: .venv/installed  ## Change the mathematics at random (mutmut) and see that a test fails (hours)
	$(BIN)/python -m pip install --quiet 'mutmut>=3.3'
	$(BIN)/mutmut run

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed  ## Speed as ratios against the physical work (docs/performance.md; BENCH="--device cuda")
	$(BIN)/python benchmarks/run.py --history benchmarks/history.jsonl $(BENCH)

docs: .venv/docs  ## Build the documentation in docs/_build/html; warnings and dead links are errors
	rm -rf docs/_build docs/auto docs/reference/generated  # pages that are gone would stay
	$(BIN)/python -m sphinx -q -W --keep-going -n docs docs/_build/html
	$(BIN)/python tools/check_site.py docs/_build/html

clean:  ## Remove the environment, caches and the built documentation
	rm -rf .venv .venv-lowest .venv-lowest-core .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	rm -rf docs/_build docs/auto docs/reference/generated

# Enough for the demo, without torch; an environment that has everything serves as well.
.venv/cli: pyproject.toml
	[ -e .venv/installed ] || { $(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet --editable '.[cli]'; }
	touch $@

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# pip has no way to ask for lowest versions: uv writes them down, pip installs them. torch stays as constrained.
.venv-lowest/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet uv
	.venv-lowest/bin/uv pip compile --quiet --resolution lowest-direct --constraint constraints.txt \
		--extra dev pyproject.toml --output-file .venv-lowest/versions.txt
	.venv-lowest/bin/python -m pip install --quiet --constraint .venv-lowest/versions.txt --editable '.[dev]'
	touch $@

# The same with fewer extras: one of the others needs a later numpy than the core does. The checks of
# scikit-learn 1.6 are not for pytest 9. What these versions need in turn is the newest, and the newest pyparsing
# warns of what matplotlib 3.8 does.
.venv-lowest-core/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-lowest-core
	.venv-lowest-core/bin/python -m pip install --quiet uv
	(cat constraints.txt; echo 'pyparsing<3.3') > .venv-lowest-core/constraints.txt
	.venv-lowest-core/bin/uv pip compile --quiet --resolution lowest-direct \
		--constraint .venv-lowest-core/constraints.txt \
		--extra torch --extra onnx --extra report pyproject.toml --output-file .venv-lowest-core/versions.txt
	.venv-lowest-core/bin/python -m pip install --quiet --constraint .venv-lowest-core/versions.txt \
		--editable '.[torch,onnx,report]' hypothesis 'pytest<9' pytest-xdist
	touch $@

.venv/docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@
