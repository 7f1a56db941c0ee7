# Start with `make serve` or `make test`: each creates .venv, installs what it needs, and runs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile
# It is faster than pip, for the installations on the way of most developers and of CI; pip can do the same.
UV := $(PIP) 'uv>=0.9' && $(BIN)/python -m tests.installed.uv

# Hundreds of processes of the tests import the same modules: keep the bytecode, even if the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help serve quick test test-processors test-arm test-slow test-all test-removal clients browser foreign database check check-types check-texts format bench bench-gpu bench-explanations \
	bench-recording bench-recorded-query bench-drift bench-feedback docs screenshots lock sbom image-facts audit proto fixtures evaluate-fixtures clean soak soak-features mutants

# The text after `##` has a target's group in brackets, then its help.
help: ## [run] show this list
	@for group in run test measure release; do echo "$$group:"; \
		sed -nE "s/^([a-z-]+):.*## \[$$group\] (.*)/  \1\t\2/p" $(MAKEFILE_LIST) | expand -t 24; done

serve: $(VENV)/.serve ## [run] install the server, and serve the demo models; PORT=8090 chooses the port
	@MAKE_TARGET=serve $(BIN)/charioteer serve --demo $(if $(PORT),--port $(PORT))

quick: $(VENV)/.test ## [test] run the quick tests of the folders that changed (under a minute)
	@$(BIN)/python -m tests.support.quick

test: $(VENV)/.test ## [test] install the dependencies of the quick tests, and run them (minutes)
	@$(BIN)/python -m pytest --numprocesses 3 --override-ini faulthandler_timeout=180 -m "not slow"

test-processors: $(VENV)/.test ## [test] run the numeric tests on an emulated processor without AVX-512 (20 minutes)
	@$(BIN)/python -m tests.support.processors

# This needs root and Debian.
test-arm: $(VENV)/.test $(VENV)/.supply ## [test] run a server, conform and tests on an emulated ARM processor (about a quarter of an hour)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.support.arm

# One worker runs all tests of a file, so that servers and environments are started once; the longest files run first.
# The tests start processes and wait for them: four workers keep two cores busy.
SLOW := --numprocesses 4 --dist loadfile --no-loadscope-reorder
test-slow: $(VENV)/.test-slow browser database ## [test] run the slow tests: browser, PostgreSQL, torch, real servers
	@$(BIN)/python -m pytest $(SLOW) -p no:schemathesis -m "slow and not rare" $(ONLY)

test-all: test $(VENV)/.test-slow browser foreign database ## [test] run all tests, also foreign clients and Ray's matrix
	@$(BIN)/python -m pytest $(SLOW) -m slow

test-removal: $(VENV)/.test ## [test] delete each plugin from a copy of the code, and try all others (minutes)
	@$(BIN)/python -m tests.support.removal

clients: $(VENV)/.test-slow browser foreign ## [test] run foreign clients, and print which of their calls work (minutes)
	@$(BIN)/python -m tests.clients

# The tests of the web page need Debian's Chromium. This needs root and Debian. Otherwise install it yourself, or these
# tests are skipped.
browser: ## [test] install Chromium for the tests of the web page
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
		echo "Installing Chromium for the tests of the web page ..."; \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
			chromium fonts-dejavu-core; } >/dev/null || echo "Chromium could not be installed; its tests are skipped"; }

# The tests of foreign clients need Debian's Go and Node.js.
foreign: ## [test] install Go and Node.js for the tests of clients
	@{ command -v node && command -v go; } >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
		echo "Installing Go and Node.js for the tests of clients ..."; \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
			golang-go nodejs; } >/dev/null || echo "They could not be installed; some tests are skipped"; }

# The tests of recording need Debian's PostgreSQL.
database: ## [test] install PostgreSQL for the tests of recording
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
		echo "Installing PostgreSQL for the tests of recording ..."; \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
			postgresql; } >/dev/null || echo "PostgreSQL could not be installed; its tests are skipped"; }

# Types take longest; the other checks run beside them. Two threads of pyright would take more processor time.
check: $(VENV)/.check ## [test] check style, types, import contracts, spelling, wording and links
	@$(MAKE) --no-print-directory --jobs=2 --keep-going check-types check-texts

check-types: $(VENV)/.check ## [test] check types with pyright
	@$(BIN)/pyright

check-texts: $(VENV)/.check ## [test] check style, import contracts, spelling, wording and links
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/codespell
	@$(BIN)/python -m tests.support.prose
	@$(BIN)/python docs/links.py

docs: $(VENV)/.docs ## [run] write the tables and the command reference of docs/, and build the documentation site in build/site
	@$(BIN)/python -m docs.tables
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

screenshots: $(VENV)/.test-slow browser ## [run] take the images of the documentation again, and 24 of the page to build/screenshots
	@$(BIN)/python -m tests.browser.screenshots

format: $(VENV)/.check ## [test] format the code
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

bench: $(VENV)/.bench ## [measure] benchmark the server, its protocols and other servers (half an hour)
	@$(BIN)/python -m tests.benchmarks.serving --write

bench-gpu: $(VENV)/.bench ## [measure] measure throughput and latency on a GPU, if there is one
	@$(BIN)/python -m tests.benchmarks.serving.tables.gpu

bench-explanations: $(VENV)/.fixtures ## [measure] compare explanations with random maps on generated scenes (minutes)
	@$(BIN)/python -m tests.benchmarks.explanations

bench-recording: $(VENV)/.test ## [measure] measure the cost of recording
	@$(BIN)/python -m tests.benchmarks.recording

bench-recorded-query: $(VENV)/.test ## [measure] measure queries on a million recorded inferences (minutes)
	@$(BIN)/python -m tests.benchmarks.recorded_query

bench-drift: $(VENV)/.test ## [measure] measure how much drift is found, and the rate of false alarms (minutes)
	@$(BIN)/python -m tests.benchmarks.drift_power

bench-feedback: $(VENV)/.fixtures ## [measure] measure calibration and shadow versions, and kill processes while truths arrive (minutes)
	@$(BIN)/python -m tests.benchmarks.calibration
	@$(BIN)/python -m tests.benchmarks.shadow
	@rm -rf build/truths && mkdir -p build/truths
	@$(BIN)/python -m tests.plugins.recording.test_truth_kill build/truths/store.db 30

soak: $(VENV)/.test ## [test] run ten minutes of mixed traffic with injected faults, and check every answer
	@$(BIN)/python -m tests.soak

soak-features: $(VENV)/.test database ## [test] use every feature at once for an hour, and kill PostgreSQL twice
	@$(BIN)/python -m tests.soak_features

lock: $(VENV)/.supply ## [release] resolve the locks of the image again
	@$(BIN)/python deploy/lock.py

sbom: $(BIN)/python ## [release] write the bill of materials of an image to build/sbom.cdx.json
	@rm -rf build/image && mkdir -p build
	@PYTHON=$(BIN)/python sh deploy/install.sh build/image
	@cp build/image/share/charioteer/sbom.cdx.json build/sbom.cdx.json

image-facts: $(VENV)/.test $(VENV)/.supply ## [release] print size, packages, vulnerabilities, start and memory of an image (minutes)
	@$(BIN)/python -m tests.benchmarks.image_facts

audit: $(VENV)/.supply ## [release] look up known vulnerabilities of the locked packages (needs the network)
	@for file in deploy/requirements/*.txt; do echo "$$file"; \
		$(BIN)/pip-audit --strict --disable-pip --require-hashes --progress-spinner off --requirement "$$file" || exit 1; done

mutants: $(VENV)/.test ## [test] break the code in sixty places, and check that a quick test fails for each (minutes)
	@$(BIN)/python -m tests.mutants

proto: $(VENV)/.test-slow ## [test] recompile the descriptors of the gRPC protocols
	@for file in app/core/proto/*.proto app/plugins/*/proto/*.proto; do $(BIN)/python -m grpc_tools.protoc -I. \
		--descriptor_set_out=$${file%.proto}.binpb $$file || exit 1; done

fixtures: $(VENV)/.fixtures ## [test] train the fixture models again (up to half an hour)
	@$(BIN)/python -m fixtures.train

evaluate-fixtures: $(VENV)/.fixtures ## [measure] measure the fixture models on newly drawn scenes
	@$(BIN)/python -m fixtures.evaluate

clean: ## [run] remove the virtual environment (.venv)
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

# Stamp files make the second start fast: pip runs again only if pyproject.toml changed.
$(VENV)/.serve: pyproject.toml | $(BIN)/python
	@echo "Installing Charioteer and its packages into $(VENV); this takes a minute ..."
	@rm -f $@
	@{ $(PIP:--quiet=) --progress-bar off --editable '.[demo]' && touch $@; } | awk '\
		/^Collecting/ { printf "  %d %s\n", ++count, $$2; fflush() } \
		/^Installing collected/ { print "Writing " count " packages ..."; fflush() }'
	@test -e $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "Installing Charioteer and its tests into $(VENV) ..."
	@$(UV) test || $(PIP) --editable '.[test]'
	@touch $@

$(VENV)/.test-slow: pyproject.toml | $(BIN)/python
	@echo "Installing what the slow tests need into $(VENV) ..."
	@$(PIP) --editable '.[test-slow]'
	@touch $(VENV)/.test $@

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[test,torch,openvino,bench]'
	@touch $@

$(VENV)/.check: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[test-slow,check]'
	@touch $@

# What .ci/run needs after the quick tests, in one installation instead of three.
$(VENV)/.gate: pyproject.toml | $(BIN)/python
	@$(UV) test-slow check docs || $(PIP) --editable '.[test-slow,check,docs]'
	@touch $(VENV)/.test $(VENV)/.test-slow $(VENV)/.check $(VENV)/.docs $@

$(VENV)/.supply: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[supply]'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.fixtures: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[test,fixtures]'
	@touch $@
