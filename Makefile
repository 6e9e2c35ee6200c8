# Every target sets up what it needs in .venv and reuses it.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow lint bench format clean

demo: .venv/demo
	$(BIN)/stillery demo

test: .venv/dev
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

bench: .venv/dev
	$(BIN)/python benchmarks/methods.py
	$(BIN)/python benchmarks/vocabulary.py --losses kl

test-slow: .venv/dev
	$(BIN)/python -m pytest -m slow

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch comes first: with it in place nothing pulls another build of it.
.venv/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/demo: .venv/base
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[demo]"
	touch $@

.venv/dev: .venv/base
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[demo,generation,tensorboard,transport,dev]"
	touch $@

clean:
	rm -rf .venv demo demo-fast
