# `make serve` and `make test` are all a newcomer needs: each makes .venv, installs what it needs, and runs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help serve test browser database check format bench bench-explanations bench-recording bench-recorded-query \
	bench-drift docs lock sbom audit proto fixtures evaluate-fixtures clean soak fuzz fuzz-decoders

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

serve: $(VENV)/.serve ## install what serving needs, and serve the fixture models
	@$(BIN)/charioteer serve

test: $(VENV)/.test browser database ## install what the tests need, and run all of them
	@$(BIN)/python -m pytest --numprocesses 2

# The tests of the page want Debian's Chromium and axe-core from npm, those of clients Debian's Go. Who is not root, or not
# on Debian, installs them or goes without these tests.
browser:
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
		echo "Installing Chromium for the tests of the page ..."; \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
			chromium fonts-dejavu-core golang-go; } >/dev/null || echo "Chromium could not be installed; its tests will say so"; }
	@command -v npm >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
		echo "Installing npm for the tests of the page ..."; \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
			npm; } >/dev/null || echo "npm could not be installed; the tests of the page will say so"; }
	@cmp -s tests/browser/package-lock.json $(VENV)/browser/package-lock.json || ! command -v npm >/dev/null || { \
		mkdir -p $(VENV)/browser && cp tests/browser/package.json tests/browser/package-lock.json $(VENV)/browser/ && \
		npm ci --prefix $(VENV)/browser --silent --no-audit --no-fund || { rm -f $(VENV)/browser/package-lock.json; \
			echo "axe-core could not be installed; the tests of the page will say so"; }; }

# The tests of recording want Debian's PostgreSQL.
database:
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
		echo "Installing PostgreSQL for the tests of recording ..."; \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
			postgresql; } >/dev/null || echo "PostgreSQL could not be installed; its tests will say so"; }

check: $(VENV)/.check ## lint, types, import contracts, spelling, dead links
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports
	@$(BIN)/codespell
	@$(BIN)/python docs/links.py

docs: $(VENV)/.docs ## build the documents as a site, into build/site
	@$(BIN)/mkdocs build --strict --quiet

format: $(VENV)/.check ## format the code
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

bench: $(VENV)/.test ## measure the server, its protocols and others (half an hour)
	@$(BIN)/python -m benchmarks.serving --write

bench-explanations: $(VENV)/.fixtures ## compare explanations with random maps on generated scenes (minutes)
	@$(BIN)/python -m benchmarks.explanations

bench-recording: $(VENV)/.test ## measure what recording costs
	@$(BIN)/python -m benchmarks.recording

bench-recorded-query: $(VENV)/.test ## ask a million recorded inferences (minutes)
	@$(BIN)/python -m benchmarks.recorded_query

bench-drift: $(VENV)/.test ## measure what drift is found, and how often an alarm is false (minutes)
	@$(BIN)/python -m benchmarks.drift_power

soak: $(VENV)/.test ## half an hour of mixed traffic and injected faults, every answer checked
	@$(BIN)/python -m soak

lock: $(VENV)/.supply ## solve for the locks of the image anew
	@$(BIN)/python deploy/lock.py

sbom: $(BIN)/python ## list what an image installs, into build/sbom.cdx.json
	@rm -rf build/image && mkdir -p build
	@PYTHON=$(BIN)/python sh deploy/install.sh build/image
	@cp build/image/share/charioteer/sbom.cdx.json build/sbom.cdx.json

audit: $(VENV)/.supply ## ask for known faults of what the locks install (needs the network)
	@for each in deploy/requirements/*.txt; do echo "$$each"; \
		$(BIN)/pip-audit --strict --disable-pip --require-hashes --progress-spinner off --requirement "$$each" || exit 1; done

fuzz: $(VENV)/.test ## send a real server 100,000 requests that are wrong in every way (minutes)
	@$(BIN)/python -m fuzz

fuzz-decoders: $(VENV)/.fuzz ## lead what reads a sender's bytes astray, by coverage (minutes)
	@$(BIN)/python -m fuzz.decoders

proto: $(VENV)/.test ## compile the gRPC protocols' descriptors again
	@for name in inference grps; do $(BIN)/python -m grpc_tools.protoc -Iproto \
		--descriptor_set_out=app/protocols/pb/$$name.binpb app/protocols/pb/$$name.proto || exit 1; done
	@for name in open_inference grps; do $(BIN)/python -m grpc_tools.protoc -Iproto \
		--descriptor_set_out=app/conformance/messages/$$name.binpb app/conformance/messages/$$name.proto || exit 1; done

fixtures: $(VENV)/.fixtures ## train the fixture models again (up to half an hour)
	@$(BIN)/python -m fixtures.train

evaluate-fixtures: $(VENV)/.fixtures ## measure the fixture models on freshly made scenes
	@$(BIN)/python -m fixtures.evaluate

clean: ## remove what the other targets made
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

# The stamps make a second start instant: pip runs again only when pyproject.toml has changed.
$(VENV)/.serve: pyproject.toml | $(BIN)/python
	@echo "Installing Charioteer into $(VENV) ..."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "Installing Charioteer and its tests into $(VENV) ..."
	@$(PIP) --editable '.[test,torch]'
	@touch $(VENV)/.serve $@

$(VENV)/.check: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[test,check]'
	@touch $(VENV)/.serve $@

$(VENV)/.supply: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[supply]'
	@touch $(VENV)/.serve $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[docs]'
	@touch $(VENV)/.serve $@

$(VENV)/.fuzz: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[test,fuzz]'
	@touch $(VENV)/.serve $@

$(VENV)/.fixtures: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[test,fixtures]'
	@touch $(VENV)/.serve $@
