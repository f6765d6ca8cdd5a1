# All of it from a bare Python of 3.11 to 3.13: the first call makes .venv, later ones find it ready.
# Everything runs on CPUs, without root, and needs the network only for the first call.

VENV := .venv/bin
# Files that end so are parts of benchmarks.
BENCHES := $(filter-out %_train.py %_forms.py %_graphs.py %_trays.py,$(wildcard benchmarks/*.py))
PYTEST := $(VENV)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help env demo test testbed slow fuzz check format bench weights docs clean

help: ## show this
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

env: ## make .venv from uv.lock
	@sh tools/bootstrap.sh

demo: env ## one job through a tray fault and a rack fault, on two simulated racks
	$(VENV)/rackyard demo --out out/demo

test: env ## the quick test suite, with the corpus tests where the corpus is there
	$(PYTEST) -m "not slow"

testbed: env ## build etcd, Kubernetes, KWOK, Volcano and Kueue with Go (minutes, the first time)
	$(VENV)/python -m testbed build

slow: env ## the tests that take long
	$(PYTEST) -m slow

fuzz: env ## every reader on 100,000 damaged inputs (hours; RACKYARD_FUZZ sets how many)
	RACKYARD_FUZZ=$${RACKYARD_FUZZ:-100000} $(PYTEST) -m fuzz --timeout 0

check: env ## format, lint, types, floors, docs
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/lint-imports --no-logo
	$(PYTEST) -q tests/test_house.py
	NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs build --strict --quiet

format: env ## put the code in form
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

bench: env ## run every benchmark and print its table
	@for file in $(BENCHES); do echo "== $$file"; $(VENV)/python "$$file" || exit 1; done

weights: env ## train the 3D model's committed weights anew (about 40 minutes of one core)
	$(VENV)/python -m rackyard.shape3d.weights

docs: env ## write the generated pages and build the site into site/
	$(VENV)/python -m rackyard.jobs.specdoc > docs/job-spec.md
	$(VENV)/python -m rackyard.fabric.expect.rulesdoc > docs/fabric-rules.md
	$(VENV)/python -m rackyard.fabric.keysdoc > docs/label-keys.md
	$(VENV)/python -m rackyard.nccl.rulesdoc > docs/nccl-rules.md
	NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs build --strict --quiet
	@echo "site/index.html"

clean: ## remove what is made, except .venv
	rm -rf out build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
