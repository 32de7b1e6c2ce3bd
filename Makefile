# Every target sets up what it needs; start with `make run`.

PYTHON ?= python3
CONFIG ?=
STRATEGIES ?= all
SEEDS ?= 5
BUDGET ?= 60 rounds
ARGS ?=
RUN ?= latest
METHOD ?=
PAPER ?=
EXAMPLES ?= 5000
VENV := .venv
BIN := $(VENV)/bin
FORAGER := $(BIN)/python -m forager.tools.cli
STAMP := $(VENV)/installed
LOCKED := device server dev
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --require-hashes --no-deps
PACKAGES := core strategies client_app server_app tools benchmarks
# The package as a wheel has it: the type checker and the import linter go by the file system
NAMED := $(CURDIR)/.cache/import-name
# These start real Flower processes, which have deadlines and wait for each other most of the time:
# two cores are enough for four files at a time. The longest go first.
LONG_TESTS := $(patsubst %,tests/%.py,integration/test_flwr_run deployment/test_second_run \
	deployment/test_deployed integration/test_ray_cluster deployment/test_bad_input deployment/test_own_app \
	deployment/test_hostile_node deployment/test_three_nodes)
FLOWER_TESTS := $(LONG_TESTS) $(filter-out $(LONG_TESTS),$(wildcard tests/deployment/test_*.py))
# The names that Chromium goes by
BROWSERS := chromium chromium-browser google-chrome chrome
HAS_BROWSER := command -v $(BROWSERS) > /dev/null
# As root on Debian it can be installed
GET_BROWSER := { test "$$(id -u)" = 0 \
	&& apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; } > /dev/null 2>&1
# The brackets keep the pattern from matching the shell that looks for it.
LOCAL_STATE := $(CURDIR)/.flwr-home/local-superlink/state[.]db

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help venv run compare watch live demo doctor test test-browser test-faults fuzz fuzz-replies mutate lint docs bench results results-rerun stop clean lock audit hub release
export CONFIG

help: ## List the targets
	@echo 'Usage: make <target>'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## Create .venv and install the pinned dependencies; again only when they change

# Packages are those of locks/, whose hashes pip checks; `make lock` writes them anew. PyTorch is its CPU
# build where pip is told of an index or a folder that has it, else that of the package index.
# Of pip's list of 170 packages the large downloads are shown, which are what takes time.
# The last step writes a .pth file, a line of Python that runs whenever the environment's Python
# starts. It sets defaults for Flower's environment variables (tools/flower/env.py says which
# and why), so that a plain `.venv/bin/flwr run .` keeps its state in this folder and installs
# nothing, with or without `source .venv/bin/activate`.
$(STAMP): pyproject.toml $(wildcard locks/*.txt)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo '$(PYTHON) is too old: Python 3.11 or newer is needed (make venv PYTHON=python3.11)'; exit 1; }
	@if test -e $@; then echo 'Updating $(VENV): pyproject.toml or locks/ has changed.'; else \
		echo 'Setting up $(VENV): PyTorch, Flower, Ray and what they need. Some minutes, mostly downloads; only this once.'; fi
	@echo '  1/3 making the environment'
	@mkdir -p $(VENV) && date +%s > $(VENV)/began
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo '  2/3 fetching and installing packages'
	@torch=torch-cpu; $(INSTALL) --quiet --dry-run -r locks/torch-cpu.txt > $(VENV)/pip.log 2>&1 || torch=torch; \
	$(INSTALL) -r locks/$$torch.txt $(LOCKED:%=-r locks/%.txt) 2> $(VENV)/pip.log \
		| while IFS= read -r line; do \
			if [[ $$line =~ Downloading\ ([A-Za-z0-9_.]+)-.*[(]([0-9]{2,}[.0-9]*\ MB)[)] ]]; then \
				echo "      $${BASH_REMATCH[1]} ($${BASH_REMATCH[2]})"; \
			elif [[ $$line == 'Installing collected packages:'* ]]; then \
				words=($$line); echo "      installing $$(( $${#words[@]} - 3 )) packages"; fi; done \
		|| { tail -n 20 $(VENV)/pip.log; echo 'the installation failed; all of it: $(VENV)/pip.log'; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@echo '  3/3 settings for Flower in this folder'
	@$(BIN)/python -m forager.tools.flower.env
	@touch $@
	@echo "$(VENV) is ready: $$(du -sh $(VENV) | cut -f 1) in $$(( $$(date +%s) - $$(cat $(VENV)/began) )) s. For the command forager: source $(BIN)/activate"

run: $(STAMP) ## Train once in Flower's simulation: the united strategy, with what CONFIG="seed=1" changes
	@$(FORAGER) run -c "$$CONFIG"

compare: $(STAMP) ## Which strategy fits my data? By CONFIG="task='npz' ...", STRATEGIES, SEEDS, BUDGET, ARGS
	@$(FORAGER) compare $(STRATEGIES) -c "$$CONFIG" --seeds $(SEEDS) --budget "$(BUDGET)" $(ARGS)

watch: $(STAMP) ## Follow a run in the terminal: the newest, or RUN=runs/<time>
	@$(FORAGER) watch $(RUN)

live: $(STAMP) ## Follow all runs on a page in the browser
	@$(FORAGER) watch --web $(ARGS)

demo: $(STAMP) ## See a method where it helps: METHOD=forager, cosage, gcfl, ode, auxo or ios
	@$(FORAGER) demo $(METHOD)

doctor: $(STAMP) ## What works on this machine, and how to fix the rest
	@$(FORAGER) doctor

# Tests with Flower processes leave about a third of two cores idle, which the others take: by `nice`
# they get only that. What the first say is kept until they end, not to mix the lines of both.
test: lint ## Check the code and run all tests, those with real Flower processes and in Chromium too
	@$(HAS_BROWSER) || echo 'Chromium is not installed: the pages are not opened in a browser'
	@$(MAKE) --no-print-directory --jobs 2 --keep-going test-flower test-others

# Workers that share cores must not each start threads for all of them.
.PHONY: test-flower test-others
test-others:
	OMP_NUM_THREADS=1 nice $(BIN)/python -m pytest -n 2 --dist worksteal $(addprefix --ignore=,$(FLOWER_TESTS))

test-flower:
	@mkdir -p .cache; pages=; ! $(HAS_BROWSER) || pages=tests/browser; \
		$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(FLOWER_TESTS) $$pages \
			> .cache/test-flower.log 2>&1 || failed=1; \
		cat .cache/test-flower.log; test -z "$${failed:-}" || { echo 'The tests with Flower processes failed.'; exit 1; }

test-browser: $(STAMP) ## Open the pages in Chromium (root on Debian: installed if missing), sort and hover
	@$(HAS_BROWSER) || $(GET_BROWSER) || { echo 'Chromium is needed: apt-get install chromium'; exit 1; }
	$(BIN)/python -m pytest tests/browser

test-faults: $(STAMP) ## Kill, freeze and cut off real Flower processes during runs (some 30 minutes)
	$(BIN)/python -m pytest -s tests/faults

fuzz: $(STAMP) ## Feed every decoder, the config reader and the server EXAMPLES bad inputs each, new ones every time
	FUZZ_EXAMPLES=$(EXAMPLES) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/fuzz

fuzz-replies: $(STAMP) ## Damage every entry of every reply to every method, one at a time; the suite tries some
	FUZZ_EXAMPLES=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --timeout 3600 tests/fuzz/test_fuzz_records.py -k one_thing

mutate: $(STAMP) ## Change 150 places of selectors/ and strategies/, one at a time: does a test notice? (20 minutes)
	$(BIN)/python tests/mutation $(ARGS)

lint: $(STAMP) ## Check style, types, and that imports only point down
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@rm -rf $(NAMED) && mkdir -p $(NAMED)/forager/selectors && touch $(NAMED)/forager/selectors/__init__.py
	@ln -s $(CURDIR)/forager/__init__.py $(addprefix $(CURDIR)/,$(PACKAGES)) $(NAMED)/forager
	@ln -s $(wildcard $(CURDIR)/selectors/[a-z]*) $(NAMED)/forager/selectors
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint-types lint-imports

.PHONY: lint-types lint-imports
lint-types:
	cd $(NAMED) && $(CURDIR)/$(BIN)/mypy --cache-dir $(CURDIR)/.mypy_cache --config-file $(CURDIR)/pyproject.toml -p forager

lint-imports:
	cd $(NAMED) && PYTHONPATH=$(NAMED) $(CURDIR)/$(BIN)/lint-imports --config $(CURDIR)/pyproject.toml --no-cache

docs: $(STAMP) ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(STAMP) ## Measure speed, as ratios to other ways of doing the same
	$(BIN)/python -m forager.benchmarks.speed $(ARGS)
	OMP_NUM_THREADS=1 $(BIN)/python -m forager.benchmarks.methods_speed $(ARGS)
	$(BIN)/python -m forager.benchmarks.round_trace
	$(BIN)/python -m forager.benchmarks.general_path
	$(BIN)/python -m forager.benchmarks.memory
	$(BIN)/python -m forager.benchmarks.sparse_uplink
	$(BIN)/python -m forager.benchmarks.selection_speed
	$(BIN)/python -m forager.benchmarks.summary_overhead
	$(BIN)/python -m forager.benchmarks.coreset_speed
	$(BIN)/python -m forager.benchmarks.stream_speed
	$(BIN)/python -m forager.benchmarks.cohort_speed
	$(BIN)/python -m forager.benchmarks.overlap_speed
	$(BIN)/python -m forager.benchmarks.message_cost processes

results: $(STAMP) ## Make the pages and pictures of docs/results from benchmarks/records
	@$(BIN)/python -m forager.benchmarks.studies pages

results-rerun: $(STAMP) ## Do the runs of PAPER=forager, cosage, gcfl, ode, auxo, ios, no-harm, security or compare again; continues if stopped
	$(BIN)/python -m forager.benchmarks.studies rerun $(PAPER)

stop: ## Stop the SuperLink that `flwr run .` by hand leaves running
	@pid=$$(pgrep -f -- '--database $(LOCAL_STATE)') && kill $$pid && echo 'stopped' || echo 'none is running'

clean: stop ## Remove the environment and all caches; results in runs/ stay
	rm -rf $(VENV) .flwr-home .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

include docker/docker.mk

wheel: $(STAMP) ## Build the wheel of the library, forager-fl, into dist/
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

test-wheel: $(STAMP) ## Install the wheel elsewhere and run the app of docs/library.md on it by `flwr run`
	$(BIN)/python -m pytest tests/wheel

HUB := dist/hub/forager-quickstart
# Flower's newest version by itself: it validates, and trains nothing
HUB_FLOWER := .cache/hub

hub: $(STAMP) ## Build the folder for Flower's Hub, and have Flower's own validation look at it
	@rm -rf $(HUB) && $(FORAGER) init $(HUB)
	@sed -i 's/^publisher = "you"/publisher = "forager"/' $(HUB)/pyproject.toml
	@$(BIN)/python tests/hub/validate.py $(HUB)
	@$(PYTHON) -m venv $(HUB_FLOWER)
	@if $(HUB_FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'flwr<2'; \
		then $(HUB_FLOWER)/bin/python tests/hub/validate.py $(HUB); \
		else echo 'the package index does not give the newest Flower: it was not asked'; fi
	@echo 'To publish it: flwr login, then flwr app publish $(HUB)'

RELEASE := .cache/release
BUILT := dist/release

release: $(STAMP) ## Build sdist and wheel, check them, and use the wheel in an empty environment and in apps
	@rm -rf $(BUILT) && $(PYTHON) -m venv --clear $(RELEASE)
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check build twine
	@$(RELEASE)/bin/python -m build --outdir $(BUILT) . > $(RELEASE)/build.log || { tail -n 20 $(RELEASE)/build.log; exit 1; }
	@$(RELEASE)/bin/twine check --strict $(BUILT)/*
	@$(PYTHON) -m venv --clear $(RELEASE)
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		"$$(ls $(BUILT)/*.whl)[server]"
	@$(RELEASE)/bin/python -m pip check
	@rm -rf $(RELEASE)/trial && cd $(RELEASE) && bin/forager init trial && cd trial && ../bin/forager run --local
	$(BIN)/python -m pytest tests/wheel
	@ls -l $(BUILT)

lock: $(STAMP) ## Write locks/ anew: versions of constraints.txt, with hashes from the package index
	@$(BIN)/python locks/write.py

AUDIT := .cache/audit

audit: $(STAMP) ## List all packages (dist/sbom.json); look for known holes in them and for secrets in our files
	@$(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r locks/audit.txt
	@$(AUDIT)/bin/python locks/audit.py $(BIN)/python

# Flower's newest version over the packages of $(VENV), in an environment of its own.
NEWEST := .cache/newest
# The tests of deployments are about gRPC, which SuperNodes speak up to 1.39; tests/newest is a
# deployed run by the protocol of the version that is there.
NEWEST_TESTS := tests/unit tests/conformance tests/integration
NEWEST_SMOKE := tests/unit/core/wire tests/integration/test_flower_start.py tests/integration/test_library_page.py
ON_NEWEST := PATH=$(abspath $(NEWEST))/bin:$$PATH PYTHONPATH=$(CURDIR) OMP_NUM_THREADS=1 $(NEWEST)/bin/python -m pytest
GET_NEWEST := $(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 30 --upgrade

# pip settles for an older Flower where the index lacks something that the newest one asks for. The
# second step takes the newest all the same; what it then lacks is printed.
.PHONY: newest
newest: $(STAMP)
	@$(PYTHON) -m venv $(NEWEST)
	@echo $(abspath $(BIN))/../lib/python3.*/site-packages > $(NEWEST)/over.txt
	@cp $(NEWEST)/over.txt $$($(NEWEST)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz-over.pth
	@$(GET_NEWEST) 'flwr[simulation]<2' \
		|| echo 'pip could not install flwr with all that it needs; it is tried with what is here'
	@$(GET_NEWEST) --no-deps 'flwr<2'
	@$(NEWEST)/bin/python -c 'import flwr; print("flwr", flwr.__version__)'
	@$(NEWEST)/bin/python -m pip check | grep '^flwr ' || true

test-newest: newest ## Run unit and integration tests and a deployed run with the newest Flower (15 minutes)
	$(ON_NEWEST) -n 2 $(NEWEST_TESTS)
	$(ON_NEWEST) tests/newest

test-newest-quick: $(STAMP) ## Some tests and a deployed run with the newest Flower, where the index has it
	@if $(MAKE) --no-print-directory newest; then \
		$(ON_NEWEST) -n 2 --dist loadfile tests/newest $(NEWEST_SMOKE); \
		else echo 'the package index does not give the newest Flower: it was not tried'; fi

# The trackers over the packages of $(VENV), in an environment of their own.
TRACKERS := .cache/trackers

test-trackers: $(STAMP) ## Run MLflow with a file and Weights & Biases offline, where the index has them
	@$(PYTHON) -m venv $(TRACKERS)
	@echo $(abspath $(BIN))/../lib/python3.*/site-packages > $(TRACKERS)/over.txt
	@cp $(TRACKERS)/over.txt $$($(TRACKERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz-over.pth
	@$(TRACKERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		'mlflow-skinny>=2.19' 'wandb>=0.19'
	PYTHONPATH=$(CURDIR) $(TRACKERS)/bin/python -m pytest tests/trackers
