# Three commands do everything on a machine with Python and make:
#   make run         install, then the quickstart
#   make volatility  install, then the full S&P 500 posterior
#   make test        install, then all tests
# Whether those tests would notice a slip, one after the other, for an hour:
#   make mutants     applies each of tests/mutants.txt in a scratch copy
# And the site of docs/, built into site/:
#   make docs        from the pages, the docstrings and saved results
#   make notebooks   executes the tutorials once more, in place
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS ?= constraints.txt

.PHONY: run volatility test mutants lint format wheel docs notebooks clean

run: $(VENV)/installed
	$(BIN)/python -m experiments run configs/quickstart.yaml

volatility: $(VENV)/installed
	$(BIN)/python -m experiments run configs/stochastic_volatility.yaml

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

mutants: $(VENV)/installed
	$(BIN)/python -m tests.mutants --output docs/results/mutants.json

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(VENV)/installed
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

# Material announces its own end at every build unless told not to.
docs: $(VENV)/docs-installed
	$(BIN)/python -m experiments.documentation.evaluation docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

notebooks: $(VENV)/docs-installed
	$(BIN)/python -m experiments.documentation.notebooks docs/tutorials/*.ipynb

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

clean:
	rm -rf $(VENV) build dist site *.egg-info
