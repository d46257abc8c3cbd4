# rootrank: `make` lists the targets. Everything runs in a virtual environment of its own, .venv.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
# Only what reaches an index; the lock pins the versions.
PIP     = $(PY) -m pip install --quiet --disable-pip-version-check --constraint requirements.lock
# Extra arguments: make test ARGS="-m 'not kafka' tests/core"
ARGS   ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint types imports check drill calibration ablation bench bench-sql bench-clocks soak-clocks soak-agent soak-cost public-data fuzz aarch64 schemas docs lock clean need-python need-java need-test

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1 /' | awk '{n=$$1; $$1=""; printf "  make %-13s%s\n", n, $$0}'

demo: $(VENV)/.demo need-java ## bring everything up, replay a recorded incident, show it (ONCE=1: then stop)
	@ONCE="$(ONCE)" $(PY) -m pipeline.demo

test: $(VENV)/.dev need-test ## all tests, with the real Kafka, ClickHouse and Chromium
	$(PY) -m pytest -n 3 --dist loadfile $(ARGS)

lint: $(VENV)/.dev ## style and common mistakes (ruff)
	$(PY) -m ruff check .

types: $(VENV)/.dev ## types (mypy, strict)
	$(PY) -m mypy

imports: $(VENV)/.dev ## layers: imports point inward only (import-linter)
	$(VENV)/bin/lint-imports --no-cache

check: lint types imports test ## all of these: lint, types, imports, test

fuzz: $(VENV)/.dev ## fuzz the reading of lines with atheris (ARGS="-max_total_time=600")
	$(PIP) --upgrade '.[fuzz]' && mkdir -p build/fuzz && cd build/fuzz && PYTHONPATH=$(CURDIR) $(abspath $(PY)) -m tests.fuzz $(or $(ARGS),-max_total_time=60)

drill: $(VENV)/.dev ## make 1,000 incidents with known truth and score the diagnosis (ARGS="--chain C10 --count 50")
	rm -rf build/drill && $(PY) -m pipeline drill --out build/drill --count 1000 $(ARGS)
	$(PY) -m pipeline drill --score build/drill

calibration: $(VENV)/.dev ## measure how often verdicts are right, write pipeline/calibration.toml and docs/calibration.md
	$(PY) -m pipeline.drill.calibrate $(ARGS)

ablation: $(VENV)/.dev ## measure what each kind of derived evidence is worth, write docs/ablation.md (minutes)
	$(PY) -m tests.bench.ablation $(ARGS)

bench: $(VENV)/.dev need-java ## reading next to the field's tools; throughput and latency next to bare Kafka and Faust
	$(PY) -m tests.bench $(ARGS)

bench-sql: $(VENV)/.dev ## 100 million events of 100,000 GPUs in the engine: what queries cost, with plans (ARGS="--events 1000000")
	$(PY) -m tests.bench.sql_figures $(ARGS)

bench-clocks: $(VENV)/.dev need-java ## how well clocks are told from beacons; errors, bounds, orders, faults, cost (minutes)
	$(PY) -m tests.bench.clocks $(ARGS)

soak-clocks: $(VENV)/.dev need-java ## ten minutes of 16 agents with falsified clocks: is every bound true?
	$(PY) -m tests.bench.clocks_live $(ARGS)

soak-agent: $(VENV)/.dev need-java ## half an hour of rotation, kill -9, broker loss and full disk: does every line add up? (ARGS="--seconds 600")
	$(PY) -m tests.bench.agent_chaos $(ARGS)

soak-cost: $(VENV)/.dev need-java ## ten minutes of all sources at 1,000 lines/s: what does the agent cost, does it grow? (ARGS="--minutes 3")
	$(PY) -m tests.bench.agent_cost $(ARGS)

public-data: $(VENV)/.dev ## fleet statistics on public failure data next to known results (DATA=folder with the files)
	$(PY) -m tests.bench.public_data $(if $(DATA),"$(DATA)")

aarch64: $(VENV)/.dev ## is there a wheel for aarch64 of all that the agent and `rootrank diagnose` need?
	$(PY) -m tests.bench.aarch64 $(ARGS)

schemas: $(VENV)/.dev ## write schemas/v1/*.schema.json after a change of a record
	$(PY) -m schemas.generate

docs: $(VENV)/.dev ## write docs/signals.md, docs/metrics.md and docs/tables.md
	$(PY) -m pipeline.rulebook.reference && $(PY) -m pipeline.metrics > docs/metrics.md
	$(PY) -m pipeline.store.described

lock: need-python ## resolve all dependencies anew and pin them in requirements.lock
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check '.[dev]'
	{ sed -n '/^#/p' requirements.lock; build/lock/bin/python -m pip freeze --exclude rootrank; } > build/requirements.lock
	mv build/requirements.lock requirements.lock && rm -rf build/lock

clean: ## remove the virtual environment, caches and the demo's data
	rm -rf $(VENV) .demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

$(VENV)/.python: | need-python
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml requirements.lock
	@echo "installing rootrank into $(VENV) ..."
	$(PIP) --editable '.[pipeline,web,embedded,shipper]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml requirements.lock
	@echo "installing rootrank and its development tools into $(VENV) ..."
	$(PIP) --editable '.[dev]'
	@touch $(VENV)/.demo $@

need-python:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "rootrank needs Python 3.11 or later with its venv module: apt-get install python3 python3-venv," \
	       "or name another one: make PYTHON=python3.12" >&2; exit 1; }

need-java:
	@test -n "$$KAFKA_BOOTSTRAP" || command -v java >/dev/null || { \
	  echo "this needs a JDK 17 (and Maven, the first time): apt-get install openjdk-17-jdk-headless maven" >&2; exit 1; }

need-test:
	@missing=""; \
	command -v journalctl >/dev/null || missing="$$missing systemd"; \
	test -x /lib/systemd/systemd-journal-remote || missing="$$missing systemd-journal-remote"; \
	command -v java >/dev/null || missing="$$missing openjdk-17-jdk-headless"; \
	command -v mvn >/dev/null || missing="$$missing maven"; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  missing="$$missing chromium"; \
	command -v systemd-analyze >/dev/null || missing="$$missing systemd"; \
	command -v gcc >/dev/null || missing="$$missing gcc libc6-dev"; \
	for each in slurmctld slurmd munge; do \
	  command -v $$each >/dev/null || test -x /usr/sbin/$$each || missing="$$missing $$each"; done; \
	command -v sbatch >/dev/null || missing="$$missing slurm-client"; \
	test -z "$$missing" || { echo "the tests need real parts that are missing here: apt-get install$$missing" >&2; exit 1; }
