# Three commands to start: make demo, make test, make check.
# make test runs three test files side by side: many tests wait, and two cores are busy then.
# make test JOBS=0 runs them one after another.
PYTHON ?= python3
JOBS ?= 3
TESTS ?=
PART ?=
VENV := .venv
BIN := $(VENV)/bin
# What is imported is compiled when it first is: a fraction of all that pip would compile, one file at a time.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

# Thousands of processes are started by tests: none compiles again what another has compiled.
export PYTHONDONTWRITEBYTECODE :=

ifneq ($(PART),)
export TILEYARD_PART := $(PART)
endif

# Each test process has a parent that counts what its orphans cost (tests/costs.py).
PYTEST := $(if $(filter-out 0,$(JOBS)),$(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder \
	--tx '$(JOBS)*popen//python=$(BIN)/python tools/reaping.py',$(BIN)/python tools/reaping.py -m pytest)

GPU_ARCHITECTURES ?= sm_90a sm_80

.PHONY: demo test test-cost test-record quick test-all check check-code format site bench gpu-artifacts gpu-check clean

demo: $(VENV)/.run
	$(BIN)/tileyard demo

test: $(VENV)/.dev
	$(PYTEST) $(TESTS)

# CPU seconds, started processes and compiled kernels of each folder, each file and the dearest tests, on two cores.
test-cost: $(VENV)/.dev
	taskset -c 0,1 $(PYTEST) --cost-table $(TESTS)

# Which tests cover which modules, and what they cost: tests/recorded.json, by which make quick chooses.
test-record: $(VENV)/.dev
	$(BIN)/python -m tools.record -n $(JOBS)

# What a change needs before it is committed: the checks, and the tests that say most about it in 150 CPU seconds.
quick: $(VENV)/.dev
	$(BIN)/python -m tools.quick

# Everything in full of which make test runs a sample: some two hours on two cores. In parts: make test-all PART=2/6 is the second
# of six, each about half an hour (tests/parts.py).
test-all: export TILEYARD_STORM = 200
test-all: export TILEYARD_KILLS = 20
test-all: export TILEYARD_DISK_FAULTS = 1
test-all: export TILEYARD_EXAMPLE_CASES = 1
test-all: export TILEYARD_HITS = 300
test-all: export TILEYARD_SWEEPS = 1
test-all: export TILEYARD_PASS_PROGRAMS = 600
test-all: export TILEYARD_PLAN_PROGRAMS = 300
test-all: export TILEYARD_SYNC_PROGRAMS = 40
test-all: test

check: check-code site

check-code: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_modules.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The pages as a site, in build/site; warnings are errors, links and anchors among them.
site: export NO_MKDOCS_2_WARNING = 1
site: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

# Finds what readers with a keyboard or a screen reader cannot use; the tests of pages ask it where it is.
build/axe.min.js:
	mkdir -p build
	cd build && npm pack --silent axe-core@4.14.1 && tar -xzmf axe-core-4.14.1.tgz --strip-components 1 package/axe.min.js
	rm build/axe-core-4.14.1.tgz
	echo "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c  $@" | sha256sum --check --quiet

bench: $(VENV)/.run
	$(BIN)/python benchmarks/gemm_cpu.py

# What make gpu-check runs, built where TileLang is; a GPU is not needed. The folder goes to the GPU's host.
gpu-artifacts: $(VENV)/.dev
	rm -rf build/gpu-check
	TILELANG_DEFAULT_TARGET='{"kind":"cuda","arch":"sm_90a"}' \
		$(BIN)/python -m tests.gpu.make_artifacts build/gpu-check $(GPU_ARCHITECTURES)

# On a host with an NVIDIA GPU. PYTHON needs torch, numpy, cuda-bindings and msgspec; for tune --from tileyard[cuda], and no TileLang.
gpu-check:
	$(PYTHON) tests/gpu/check.py build/gpu-check

clean:
	rm -rf $(VENV) .tileyard

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch is named and pinned: an unpinned one would bring gigabytes of CUDA packages
# cuda builds for GPUs, and needs none: README's commands use it
$(VENV)/.run: constraints.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) torch==2.13.0 -e '.[tilelang,cuda]'
	touch $@

$(VENV)/.dev: constraints.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) torch==2.13.0 -e '.[tilelang,cuda,ray,optuna,pages,dev]'
	touch $(VENV)/.run $@
