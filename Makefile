# Every command of the repository. `make` alone lists them; each does the set-up it needs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
unexport PYTHONDONTWRITEBYTECODE  # tests start many processes, and each would compile opsmith's modules again

VENV := .venv
STAMPS := $(VENV)/.stamps
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet --quiet
NATIVE := $(wildcard src/opsmith/runtime/native/* src/opsmith/launch/planner/*.h)
bold := $(if $(MAKE_TERMOUT),\033[1m)
plain := $(if $(MAKE_TERMOUT),\033[0m)
say := @printf '$(bold)%s$(plain)\n'

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  $(bold)%-12s$(plain) %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- Set-up ---------------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(STAMPS)/runtime ## Virtual environment, pinned packages, opsmith itself (editable), its C++ runtime built
	@:

# What the system lacks, and the command that installs it.
missing = $(strip $(shell \
  command -v "$${CXX:-g++}" > /dev/null || echo g++; \
  python3 -c 'import ensurepip, venv' 2> /dev/null || echo python3-venv; \
  python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2> /dev/null || echo python3-dev; \
  command -v chromium chromium-browser google-chrome > /dev/null || echo chromium))
sudo = $(if $(filter 0,$(shell id -u)),,sudo )
apt = $(sudo)apt-get install -y --no-install-recommends $(missing)

$(STAMPS)/venv:
	@$(if $(missing),printf 'Missing from this system; `make system` installs it:\n  %s\n' '$(apt)' >&2)
	@$(if $(filter python3-venv,$(missing)),exit 1)
	$(say) 'virtual environment'
	@python3 -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# torch first and alone: see requirements/torch.txt.
$(STAMPS)/torch: requirements/torch.txt | $(STAMPS)/venv
	$(say) 'torch (the largest download)'
	@$(PIP) install -r $< -c requirements/dev.txt
	@touch $@

$(STAMPS)/packages: requirements/dev.txt $(STAMPS)/torch
	$(say) 'tools'
	@$(PIP) install -r $<
	@touch $@

$(STAMPS)/editable: pyproject.toml $(STAMPS)/packages
	$(say) 'opsmith'
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

$(STAMPS)/runtime: $(NATIVE) $(STAMPS)/editable
	$(say) 'C++ runtime'
	@$(PY) -m opsmith.runtime.build
	@touch $@

.PHONY: missing
missing: # for .ci/run
	@echo $(missing)

.PHONY: system
system: ## Installs what is missing from the system (apt-get)
	@$(if $(missing),$(sudo)apt-get update -qq && $(apt),echo 'Nothing is missing.')

# --- Daily work -----------------------------------------------------------------------------------------------

step = $(say) '$(1)'; SECONDS=0; $(2); echo "$(1): $$SECONDS s"

.PHONY: test
test: setup ## ruff, mypy and every test that needs no GPU
	$(call step,ruff,$(VENV)/bin/ruff check --quiet; $(VENV)/bin/ruff format --check --quiet)
	$(call step,imports,$(VENV)/bin/lint-imports --no-cache --no-logo)
	$(call step,mypy,$(VENV)/bin/mypy --no-error-summary)
	$(call step,pytest,$(VENV)/bin/pytest -n 3 --dist worksteal --quiet --durations=30 -m 'not timing')
	$(call step,pytest of times,$(VENV)/bin/pytest --quiet -m timing)

.PHONY: check-full
check-full: setup ## The whole checklist on every shipped op, CPU and emulator, 20 seeds; takes an hour
	@$(PY) benchmarks/check.py --json benchmarks/results/check_cpu.json

.PHONY: check-strangers
check-strangers: setup ## The whole checklist on sound ops that it was not tuned for; takes ten minutes
	@$(PY) benchmarks/check.py --from tests/checks/stranger_ops.py --places cpu --levels full --seeds 1 \
	  --json benchmarks/results/strangers_cpu.json \
	  --ops $$(sed -n 's/^@opsmith.*("\(strangers::[a-z0-9_]*\)".*/\1/p' tests/checks/stranger_ops.py)

.PHONY: readme-table
readme-table: setup ## Updates the tables and quotes of every page from committed rows and tested files
	@$(PY) tests/test_docs.py

.PHONY: demo
demo: setup ## What opsmith does, in a minute
	@$(VENV)/bin/opsmith demo

.PHONY: bench
bench: setup ## On the CPU: the cost of a call against aten, the pointwise ops against torch.compile, builds
	@$(PY) benchmarks/overhead.py
	@$(PY) benchmarks/cells.py --suite large
	@$(PY) benchmarks/build.py

# --- Elsewhere ------------------------------------------------------------------------------------------------

PYTHON ?= python3
OUT ?= build/gpu

.PHONY: gpu
gpu: export PYTHONPATH := $(CURDIR)/src
gpu: export OUT := $(OUT)
gpu: ## GPU tests and benchmarks by the python3 on PATH, installing nothing; JSON goes to $OUT (build/gpu)
	@mkdir -p "$(OUT)"
	@$(PYTHON) -m opsmith.cli doctor --json "$(OUT)/doctor.json"
	@$(PYTHON) -m pytest tests -m 'gpu and not timing' -p no:cacheprovider -n 12 --dist worksteal -q
	@$(PYTHON) -m pytest tests -m 'gpu and timing' -p no:cacheprovider -q
	@$(PYTHON) benchmarks/run_gpu.py --json "$(OUT)/overhead_gpu.json"
	@$(PYTHON) benchmarks/cells.py --device cuda --json "$(OUT)/cells_h200.json" || true  # the cells lost are listed
	@$(PYTHON) benchmarks/cells.py --suite large --device cuda --dtypes bfloat16 float32 float16 \
	  --json "$(OUT)/large_h200.json" || true
	@$(PYTHON) benchmarks/cells.py --suite rows --device cuda --json "$(OUT)/rows_h200.json" || true
	@$(PYTHON) benchmarks/cells.py --suite large-rows --device cuda --json "$(OUT)/large_rows_h200.json" || true
	@$(PYTHON) benchmarks/launch.py --json "$(OUT)/launch_h200.json"
	@$(PYTHON) benchmarks/convrnn.py --loop --json "$(OUT)/convrnn_h200.json"
	@$(PYTHON) benchmarks/check.py --device cuda --seeds 3 --at-once 12 --json "$(OUT)/check_h200.json"
	@test -z "$(wildcard dist/opsmith-*.whl)" || \
	  $(PYTHON) benchmarks/wheel.py dist/opsmith-*.whl --device cuda --compare --json "$(OUT)/wheel_h200.json"
	@$(PYTHON) -m opsmith.cli demo --device cuda

.PHONY: wheel
wheel: setup ## opsmith's own wheel in dist/, with everything prebuilt; needs nvcc and takes minutes
	@$(VENV)/bin/opsmith build opsmith --wheel

.PHONY: compat
compat: setup ## The C++ runtime on the oldest torch and on the newest, kernels in the oldest NVRTC; takes minutes
	@$(PY) tests/compat.py
	@$(PY) tests/compat_nvrtc.py

.PHONY: clean
clean: ## Removes everything made here: environment, builds, caches of tools
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests -name __pycache__ -prune -exec rm -rf {} +
