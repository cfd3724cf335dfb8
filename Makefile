# `make run` installs what is needed and searches kernels for the Ascend NPU; `make test` installs the rest and tests.
# A second call of either installs nothing. PYTHON chooses the interpreter, ARGS goes to the command (by default three
# verifications an operator, so that it ends in minutes) or to pytest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: run test lint types layers format install clean

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STATED := pyproject.toml constraints.txt

run: $(VENV)/.installed
	@scripts/system-packages bwrap=bubblewrap klayout=klayout
	@$(BIN)/agent setup npu --yes || echo "the Ascend compiler is not set up; compiling for it will be skipped" >&2
	$(BIN)/agent run evokernel --target npu $(if $(filter undefined,$(origin ARGS)),--set iterations=3,$(ARGS))

test: $(VENV)/.installed-dev
	@scripts/system-packages bwrap=bubblewrap klayout=klayout
	@$(BIN)/agent setup npu --yes || echo "the Ascend compiler is not set up; its tests will be skipped" >&2
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev .typing/orienteer
	MYPYPATH=.typing $(BIN)/mypy --explicit-package-bases -p orienteer

layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(VENV)/.installed

$(BIN)/python:
	"$$(scripts/find-python)" -m venv $(VENV)

# The stamps lie inside the environment: removing it removes them.
$(VENV)/.installed: $(STATED) | $(BIN)/python
	@scripts/install-torch $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e ".[npu,docker,drc,memory]"
	@scripts/install-minilm $(BIN)/python
	@touch $@

$(VENV)/.installed-dev: $(STATED) | $(BIN)/python
	@scripts/install-torch $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e ".[npu,docker,drc,memory,dev]"
	@scripts/install-minilm $(BIN)/python
	@touch $(VENV)/.installed $@

# Type checkers do not see through an editable install of a package that is the repository's root.
.typing/orienteer:
	@mkdir -p .typing && ln -sfn .. $@

clean:
	rm -rf $(VENV) .typing build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
