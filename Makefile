# Every target sets up what it needs in .venv and reuses it.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo study test test-slow faults lint bench stub docs format clean

demo: .venv/demo
	$(BIN)/stillery demo

# Continues where it was stopped.
study: .venv/demo
	$(BIN)/stillery study studies/quick.toml --out study --workers 2

test: .venv/dev
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

# The peers have an environment of their own: one of them needs torchvision, which transformers imports where it finds it.
bench: .venv/dev .venv-bench/peers
	mkdir -p bench
	$(BIN)/python benchmarks/methods.py --json bench/methods.json
	$(BIN)/python benchmarks/vocabulary.py --losses kl --json bench/vocabulary.json
	$(BIN)/python benchmarks/levers.py --json bench/levers.json
	.venv-bench/bin/python benchmarks/speed.py --tiny
	.venv-bench/bin/python benchmarks/speed.py --json bench/speed.json

# The types of the Python names, made from the settings.
stub: .venv/dev
	$(BIN)/python -m stillery.api.stub

# What the pages of methods, parts and families have from the code.
docs: .venv/dev
	$(BIN)/python -m stillery.cli.method_pages
	$(BIN)/python -m stillery.api.loop.families

# The tests of the report need a browser: root installs it, others are told what to install.
test-slow: .venv/slow
	@for one in chromium chromium-browser google-chrome; do command -v $$one >/dev/null && exit 0; done; \
		{ [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
		echo "no browser: its tests are skipped; install chromium (Debian: apt install chromium)" >&2
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile

# Kills runs of every kind at random moments, resumes them, and compares their ends (docs/reliability.md).
faults: .venv/dev
	$(BIN)/python tests/faults/crash_matrix.py --kills 200

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
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[demo,generation,onnx,peft,pictures,search,tensorboard,transport,dev]"
	touch $@

.venv/slow: .venv/dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[ray]"
	touch $@

.venv-bench/peers: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[demo,bench]"
	touch $@

clean:
	rm -rf .venv .venv-bench bench demo demo-fast study
