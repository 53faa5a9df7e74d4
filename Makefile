# Run `make` to see what there is. Every target sets up what it needs by itself.
.DEFAULT_GOAL := help
.PHONY: help setup distributions debian demo test test-fast test-long test-soak test-kubernetes image check bench clean
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

# The Debian guests that a test target needs; without them those tests are skipped, with a reason.
debian: setup ## the Debian guests that tests need, if they can be built
	@tools/distributions/build.py --import $(DISTRIBUTIONS) || \
	  echo "make: no Debian guests ($(DISTRIBUTIONS)): tests that need them are skipped" >&2

test: DISTRIBUTIONS := debian-12-cloud
test-long: DISTRIBUTIONS := debian-12-cloud debian-13-cloud
test-soak: DISTRIBUTIONS := debian-12-cloud debian-12-generic debian-13-cloud debian-13-generic

check: ## format, lint, types, layers, sizes, phrases, repetition: the static half of CI
	@tools/setup --python-only
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/limits.py
	$(BIN)/python tools/phrases.py
	$(BIN)/python tools/duplicates.py

# Behaviour must not depend on the text of a message: the unit and API suites, but for tests of the
# text itself, and a guest test of each capability, with a restart of the server, run with all
# messages scrambled.
SHORT := not long and not soak and not kubernetes
SCRAMBLED_GUESTS := tests/guest/test_lifecycle.py::test_given_a_stop_then_the_guest_hears_the_button_and_shuts_itself_down \
  tests/guest/test_live_size.py::test_given_the_control_plane_is_killed_meanwhile_then_the_change_and_the_next_are_done \
  tests/guest/test_hot_volumes.py::test_given_a_storm_of_edits_then_the_last_one_wins \
  tests/guest/test_migration.py::test_given_a_migration_is_cancelled_then_the_guest_stays_and_no_target_is_left \
  tests/guest/test_instancetypes.py::test_given_virtctl_waits_then_it_tells_what_goes_on_and_ends_when_the_guest_has_it

test: setup debian ## every suite, with small rounds of the fault suites (about 20 minutes)
	$(PYTEST) -m "$(SHORT)" -p no:cacheprovider --ignore=tests/unit --ignore=tests/api
	$(PYTEST) -m "$(SHORT) and wording" -p no:cacheprovider -q tests/unit tests/api
	$(PYTEST) -m "$(SHORT)" -p no:cacheprovider -q --scramble-messages tests/unit tests/api $(SCRAMBLED_GUESTS)

test-fast: ## what needs no guest and takes no time (under 2 minutes)
	@tools/setup --python-only
	$(PYTEST) -m "not long and not soak and not slow and not guest and not kubernetes" -p no:cacheprovider -q

test-long: setup debian ## the wider guest tests
	$(PYTEST) -m "long and not soak and not kubernetes" -p no:cacheprovider --durations=15

test-soak: setup debian ## the fault suites in full and the whole matrices (hours; not part of CI)
	$(PYTEST) -m "soak and not kubernetes" -p no:cacheprovider --durations=15
	tools/cluster build
	$(PYTEST) -m "soak and kubernetes" -p no:cacheprovider --durations=15

test-kubernetes: setup image ## suites on a real Kubernetes built from the package registries
	tools/cluster build
	$(PYTEST) -m "kubernetes and not soak" -p no:cacheprovider --durations=15
	$(PYTEST) --on kubernetes -m "not long and not soak" -p no:cacheprovider -q tests/api

image: ## container image of all components, as .cache/image/livevirt.tar
	@tools/setup --python-only
	@tools/image/build.py

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
