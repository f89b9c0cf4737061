# What a person types here. `make help` says what there is; nothing needs installing first but Python 3.11 and make.

PYTHON ?= python3
bin := .venv/bin
stamp := .venv/installed

.DEFAULT_GOAL := help
.PHONY: help venv run test lint stubs bench soak

help:
	@echo 'make run                   loadtide on this machine, watching a stand-in for vLLM under a wave of requests'
	@echo 'make run ENGINE=URL        the same with a real vLLM; URL is its /metrics'
	@echo 'make test                  everything that must hold: lint, types, tests. ARGS="-k name" goes to pytest.'
	@echo '                           With Python 3.11 it also tests a real vLLM on the CPU; the first time that'
	@echo '                           installs one into .cache (2.5 GB). Without it: ARGS="-m \"not real\""'
	@echo 'make lint                  ruff and mypy only'
	@echo 'make stubs                 Python code from the files in proto, after changing one'
	@echo 'make bench NAME=...        one benchmark of benchmarks/'
	@echo 'make soak MINUTES=15       20 times the normal calls for so long: nothing may grow'
	@echo 'make venv                  only the environment, .venv'
	@echo
	@echo 'Where to look: README.md (what it is), scaler/control (how it decides), scaler/policy/model.py (every knob).'

venv: $(stamp)

# Made anew when pyproject.toml changes. An interpreter that is too old or cannot make environments is said so here:
# pip's and venv's own messages for that help nobody.
$(stamp): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "loadtide needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not here)." >&2; \
	  echo 'Install one (Debian 12, Ubuntu 24.04 and later have it), or name it: make $(MAKECMDGOALS) PYTHON=python3.12' >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '$(PYTHON) cannot make environments (venv or ensurepip is missing). On Debian and Ubuntu: apt install python3-venv' >&2; \
	  exit 1; }
	@echo 'installing loadtide and its tools into .venv (once) ...'
	@$(bin)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@$(bin)/python -m pip --disable-pip-version-check install -qq -e '.[dev]'
	@touch $(stamp)

run: $(stamp)
	@$(bin)/python -m scaler.lab.run $(if $(ENGINE),--engine '$(ENGINE)')

test: lint
	$(bin)/pytest $(ARGS)

lint: $(stamp)
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy

stubs: $(stamp)
	$(bin)/python proto/generate.py

bench: $(stamp)
	@test -n '$(NAME)' || { echo 'Which one? make bench NAME=... ; benchmarks/README.md says what each measures' >&2; exit 1; }
	@$(bin)/python -m benchmarks.$(NAME)

soak: $(stamp)
	@$(bin)/python -m benchmarks.soak --minutes $(or $(MINUTES),15)
