# The README's two commands, and what goes with them. Nothing but Python 3.11 or later and make is needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
CAMPAIGN_SECONDS ?= 60
# Some systems switch bytecode files off. Each of the many processes that tests start would then compile every module.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup campaign test nightly bench spec evidence environment lock clean

# A virtual environment with the pinned packages, and this project in it.
setup: $(READY)

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "brokerproof needs Python 3.11 or later; say which: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.lock
	PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

# A minute of fuzzing over every component, on Spark in local mode, and a report.
campaign: $(READY)
	$(BIN)/brokerproof campaign --seconds $(CAMPAIGN_SECONDS)

# Everything that a change must pass. Three processes keep two cores busy, because tests wait for other processes.
test: $(READY)
	$(BIN)/python -m pytest -m "not nightly" -n 3 --dist loadfile --no-loadscope-reorder

# What takes too long for every change: every test, then two core minutes of fuzzing for each component, whatever the tests say.
nightly: $(READY)
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations 20; tests=$$?; \
	$(BIN)/brokerproof check --tier nightly --kind fuzz && exit $$tests

# Numbers, each against its baseline in the same run.
bench: $(READY)
	$(BIN)/brokerproof bench

# The specification as a site: build/spec/index.html.
spec: $(READY)
	$(BIN)/python -m fuzz.spec build/spec

# The documents about defects: the README's dozen, the page with all fields, and how fast each is found.
evidence: $(READY)
	$(BIN)/python -m fuzz.defects.page README.md
	$(BIN)/python -m fuzz.defects.page > fuzz/defects/README.md
	$(BIN)/brokerproof evidence --write fuzz/defects/EVIDENCE.md

# What the workers of a cluster need, packed: build/environment.tar.gz.
environment: $(READY)
	rm -rf build/lib build/environment build/environment.tar.gz
	$(PYTHON) -m venv build/environment
	build/environment/bin/pip install --quiet --disable-pip-version-check --no-deps --constraint requirements.lock . msgspec protobuf pyroaring pyarrow rich markdown-it-py mdurl pygments pulsar-client certifi
	$(BIN)/venv-pack --quiet --prefix build/environment --output build/environment.tar.gz

# Pins the versions again, from pyproject.toml.
lock: $(READY)
	$(BIN)/pip-compile --quiet --strip-extras --extra dev --extra client --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header --no-annotate --allow-unsafe --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
