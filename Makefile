# Three commands do everything on a machine with Python and make:
#   make run         install, then the quickstart: two posteriors, two samplers
#   make volatility  install, then the full S&P 500 posterior
#   make test        install, then the quick tests: 5 minutes on two cores
# Data sets of the papers, into ./data, for the configs that need them:
#   make data        install, then python -m experiments data --all
# Before a change is handed in, what .ci/run calls, and now and then:
#   make test-full     the quick tests and the long ones: 25 minutes
#   make test-nightly  the longest, then mutants and site: hours
#   make mutants       applies each slip of tests/mutants.txt in a scratch copy
# What a release needs, see CONTRIBUTING.md:
#   make dist        builds the source archive and the wheel, and checks them
#   make smoke       tests the wheel in dist/ in an environment of its own:
#                    make smoke PYTHON=python3.13 CONSTRAINTS=.ci/oldest.txt
# And the site of docs/, built into site/:
#   make docs        from the pages, the docstrings and saved results
#   make peers       .peers with PyMC, nutpie, NumPyro and BlackJAX, for
#                    python -m experiments run rivals --python .peers/bin/python
#   make notebooks   executes the tutorials once more, in place
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS ?= constraints.txt
PYTEST = $(BIN)/python -m pytest -n 2 --dist worksteal --durations 10

.PHONY: run volatility data test test-full test-nightly mutants lint format \
  wheel dist smoke docs notebooks peers clean

run: $(VENV)/installed
	$(BIN)/python -m experiments run quickstart

volatility: $(VENV)/installed
	$(BIN)/python -m experiments run configs/stochastic_volatility.yaml

data: $(VENV)/installed
	$(BIN)/python -m experiments data --all

test: $(VENV)/installed
	$(PYTEST) -m "not full and not nightly" --timeout 120

# In parts: what XLA has compiled stays in its process for good, some 5 GB each.
TEST_PARTS = "tests/contracts tests/core tests/driver" "tests/experiments" \
  "tests/fits tests/latent tests/linalg tests/linear tests/models tests/test_*.py" \
  "tests/posterior tests/preconditioners tests/surrogate tests/tempering \
  tests/transport"

test-full: $(VENV)/installed
	failed=0; for part in $(TEST_PARTS); do \
	  $(PYTEST) -m "not nightly" --timeout 600 $$part || failed=1; \
	done; exit $$failed

test-nightly: $(VENV)/installed
	$(PYTEST) -m nightly --timeout 7200
	$(MAKE) mutants docs

mutants: $(VENV)/installed
	$(BIN)/python -m tests.mutants

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python .ci/words.py

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(VENV)/installed
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

dist:
	rm -rf .release dist
	$(PYTHON) -m venv .release
	.release/bin/python -m pip install --quiet build twine
	.release/bin/python -m build
	.release/bin/python -m twine check --strict dist/*

# `-I` hides the checkout, which pip would take for an installed package.
smoke:
	rm -rf .smoke
	$(PYTHON) -m venv .smoke
	.smoke/bin/python -I -m pip install --quiet --constraint $(CONSTRAINTS) \
	  dist/*.whl
	.smoke/bin/python -I .ci/smoke.py

# Material announces its own end at every build unless told not to.
docs: $(VENV)/docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

notebooks: $(VENV)/docs-installed
	$(BIN)/python -m experiments.report notebooks docs/tutorials/*.ipynb

$(VENV)/docs-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) \
	  --editable '.[docs]'
	touch $@

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) \
	  --editable '.[experiments,test]'
	touch $@

peers: .peers/installed

.peers/installed: experiments/samplers/requirements.txt
	$(PYTHON) -m venv .peers
	.peers/bin/python -m pip install --quiet --requirement $<
	touch $@

clean:
	rm -rf $(VENV) .peers .release .smoke build dist site *.egg-info
