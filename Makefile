# Three commands do everything on a machine with Python and make:
#   make run         install, then the quickstart
#   make volatility  install, then the full S&P 500 posterior
#   make test        install, then all tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS ?= constraints.txt

.PHONY: run volatility test lint format wheel clean

run: $(VENV)/installed
	$(BIN)/python -m experiments run configs/quickstart.yaml

volatility: $(VENV)/installed
	$(BIN)/python -m experiments run configs/stochastic_volatility.yaml

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(VENV)/installed
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) \
	  --editable '.[experiments,test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
