# Three commands to start: make demo, make test, make check.
# make test runs two test files side by side; make test JOBS=0 runs them one after another.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check format bench clean

demo: $(VENV)/.run
	$(BIN)/tileyard tune examples/gemm.py

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_modules.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.run
	$(BIN)/python benchmarks/gemm_cpu.py

clean:
	rm -rf $(VENV) .tileyard

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and pinned: an unpinned one would bring gigabytes of CUDA packages
$(VENV)/.run: constraints.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) torch==2.13.0
	$(PIP) -e '.[tilelang]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) -e '.[tilelang,cuda,dev]'
	touch $@
