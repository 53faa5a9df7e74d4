# Run `make` to see what there is. Every target sets up what it needs by itself.
.DEFAULT_GOAL := help
.PHONY: help setup distributions demo test test-fast test-long test-kubernetes check bench clean
SHELL := /bin/bash
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
DISTRIBUTIONS ?= debian-12-cloud debian-13-cloud

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: ## virtual environment, system packages and the test guest
	@tools/setup

distributions: setup ## Debian guests from packages: DISTRIBUTIONS="debian-12-cloud debian-13-cloud"
	@tools/distributions/build.py --import $(DISTRIBUTIONS)

check: ## format, lint, types, layers and sizes: the static half of CI
	@tools/setup --python-only
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/limits.py

test: setup ## every suite, with small rounds of the fault suites (under 15 minutes)
	$(PYTEST) -m "not long and not kubernetes" -p no:cacheprovider

test-fast: ## what needs no guest and takes no time (under 2 minutes)
	@tools/setup --python-only
	$(PYTEST) -m "not long and not slow and not guest and not kubernetes" -p no:cacheprovider -q

test-long: setup ## the fault suites in full, and the wider guest tests
	$(PYTEST) -m "long and not kubernetes" -p no:cacheprovider

test-kubernetes: setup ## suites on a real Kubernetes built from the package registries
	tools/cluster build
	$(PYTEST) -m kubernetes -p no:cacheprovider

demo: setup ## start, boot a guest from kubectl apply, look inside it
	@$(BIN)/livevirt demo

bench: setup ## every benchmark, each as JSON
	@failed=""; \
	for file in api start scale scrape live rollout instancetypes volumes migration; do \
	  echo "# benchmarks/$$file.py"; \
	  $(BIN)/python benchmarks/$$file.py || failed="$$failed $$file"; \
	done; \
	[ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

clean: ## remove what setup made
	rm -rf .venv .cache
