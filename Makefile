# What a person types here. `make help` says what there is; nothing needs installing first but Python 3.11 and make.

PYTHON ?= python3
bin := .venv/bin
stamp := .venv/installed

.DEFAULT_GOAL := help
.PHONY: help venv run test lint stubs docs bench soak dist image lock audit

IMAGE ?= registry.example.com/loadtide
BUILDER ?= docker
version := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' scaler/__init__.py)

help:
	@echo 'make run                   loadtide on this machine, watching a stand-in for vLLM under a wave of requests'
	@echo 'make run ENGINE=URL        the same with a real vLLM; URL is its /metrics'
	@echo 'make test                  everything that must hold: lint, types, tests. ARGS="-k name" goes to pytest.'
	@echo '                           With Python 3.11 it also tests real engines on the CPU; the first time that'
	@echo '                           installs them into .cache (4 GB). Without it: ARGS="-m \"not real\""'
	@echo 'make lint                  ruff and mypy only'
	@echo 'make stubs                 Python code from the files in proto, after changing one'
	@echo 'make docs                  the documentation as a site, in site/; its reference is read anew out of the code'
	@echo 'make bench NAME=...        one benchmark of benchmarks/; ARGS="--help" goes to it'
	@echo 'make soak MINUTES=15       20 times the normal calls for so long: nothing may grow'
	@echo 'make dist                  wheel and sdist, in dist'
	@echo 'make image IMAGE=NAME      the image, as NAME:VERSION; BUILDER=podman for another engine than docker'
	@echo 'make audit                 what the image is made of (CycloneDX, in dist), and whether it is known to be vulnerable'
	@echo 'make lock                  newer versions of that'
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
	@$(bin)/python -m pip --disable-pip-version-check install -qq -e '.[dev,docs]'
	@touch $(stamp)

run: $(stamp)
	@$(bin)/python -m scaler.lab.run $(if $(ENGINE),--engine '$(ENGINE)')

# As many at once as there are cores; but not those of tests/real, whose servers want the cores for themselves.
test: lint
ifdef ARGS
	$(bin)/pytest $(ARGS)
else
	$(bin)/pytest -n auto --dist loadfile --ignore=tests/real
	$(bin)/pytest tests/real --durations=20
endif

lint: $(stamp)
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy

stubs: $(stamp)
	$(bin)/python proto/generate.py

docs: $(stamp)
	$(bin)/python -m scaler.pack.reference
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --site-dir site
	@echo 'see it with: $(bin)/python -m http.server --directory site'

bench: $(stamp)
	@test -n '$(NAME)' || { echo 'Which one? make bench NAME=... ; benchmarks/README.md says what each measures' >&2; exit 1; }
ifneq ($(strip $(ARGS)),)
	@grep -q argparse benchmarks/$(NAME).py || { echo 'benchmarks/$(NAME).py has no options: leave out ARGS' >&2; exit 1; }
endif
	@$(bin)/python -m benchmarks.$(NAME) $(ARGS)

soak: $(stamp)
	@$(bin)/python -m benchmarks.soak --minutes $(or $(MINUTES),15)

dist: $(stamp)
	@rm -rf dist/loadtide-*
	$(bin)/uv build --quiet --out-dir dist

image:
	$(BUILDER) build --file deploy/image/Dockerfile --tag $(IMAGE):$(version) \
	  --build-arg VERSION=$(version) --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null) .

# All with hashes, for the image's Python. Another platform has the same packages.
locked := $(bin)/uv pip compile --quiet --upgrade --generate-hashes --no-header --no-annotate \
  --python-version 3.13 --python-platform x86_64-manylinux_2_28
lock: $(stamp)
	$(locked) pyproject.toml --extra redis --extra kubernetes --output-file deploy/image/requirements.txt
	$(bin)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])' \
	  | $(locked) - --output-file deploy/image/build-requirements.txt

audit: $(stamp)
	$(bin)/python deploy/image/audit.py
