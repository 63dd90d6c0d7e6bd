# make demo   a story from change request to audit, in ./demo; with VERBOSE=1 every command and all output
# make wheel  build the wheel into dist, with its SHA-256; the same commit gives the same bytes
# make test   the tests; make test-slow for those that take longer
# make quick ROOM=cluster/plan   the tests of one room of the package
# make test-gitea  the tests on a real Gitea and its runner, which are built on the first run (Go, a C compiler, ten minutes); lists its calls
# make faults kill every verb at every fault point, let targets fail at every statement of ticks, recover, and print what that took
# make engine-faults  kill writers of a graph at every fault point and at any moment, look at everything, print a table
# make fuzz   compare the parsers with a second grammar on 100,000 inputs
# make fuzz-records  compare the two readers of a load on 15,000 generated streams of records
# make fuzz-crash  ten minutes of inputs that must raise nothing; guided by coverage where atheris is installed
# make trust-night  hold the rules of authors to the law over 100,000 random histories; SEED=N goes on from a number, COUNT=N looks at as many
# make policy-night  compare the evaluator of policies with Cedar's symbolic compiler on 10,000 pairs of bundles; needs cargo, and the first run builds it
# make migration-night  plan 100,000 generated pairs of schemas; SEED=N makes others, COUNT=N so many
# make mutants  plant changes in every room of the program, and list what no test notices
# make lint   format, lint, types, import contracts, workflows
# make figures  count lines, functions, callers and the files that a run enters, and print them
# make bench  measure, print a table, write bench.json; a cost that grows with a graph and must not fails
# make docs   write the generated pages again
# make docs-site  build the documentation site into build/site; a broken link fails. make docs-serve shows it while you write
# make docs-publish VERSION=0.9.0 ALIAS=latest  commit that version of the site to the branch gh-pages
# make pictures  draw the pictures of comments again; needs the Debian packages chromium and pngquant
# make lock   resolve the dependencies again

PYTHON ?= python3
VENV := .venv
DIST := dist
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PROGRAM := $(VENV)/.program
BUILD := $(VENV)/.build
RIVALS := $(VENV)/.rivals
SITE := .venv-docs

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start thousands of interpreters: without bytecode each of them would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo wheel test quick test-slow test-gitea faults engine-faults fuzz fuzz-records fuzz-crash trust-night migration-night policy-night mutants lint figures bench docs docs-site docs-serve docs-publish pictures lock clean
.DEFAULT_GOAL := test

# pip is the fallback for uv, which does not read the package index from pip's configuration. Python compiles what it imports.
install = { command -v uv >/dev/null && uv pip install --no-compile --python $(PY) $(1); } || $(PY) -m pip install --no-compile $(1)
editable = $(call install,--quiet --no-deps --no-build-isolation --editable .)
# The version is in gitops/__init__.py, and an installation remembers it.
SOURCES := pyproject.toml gitops/__init__.py

define environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Python 3.11 or later is needed'; exit 1; }
	$(PYTHON) -m venv $(VENV)
endef

# Every command installs only the part of requirements.lock that it needs: build tools, the program, or all with the test tools.
$(BUILD): requirements-build.lock
	$(environment)
	$(call install,--quiet --require-hashes --requirement requirements-build.lock)
	@touch $@

$(PROGRAM): scaffold/requirements.txt $(SOURCES) | $(BUILD)
	@echo 'Installing gitops and its libraries into $(VENV): about 180 MB to download, no test tools.'
	$(call install,--require-hashes --requirement scaffold/requirements.txt)
	$(editable)
	@touch $@

# The lock is complete, and pip resolves again for a package that asks for an extra of another one, which hashes do not permit.
$(READY): requirements.lock $(SOURCES)
	$(environment)
	@echo 'Installing gitops and its test tools into $(VENV): about 275 MB to download.'
	$(call install,--no-deps --require-hashes --requirement requirements.lock)
	$(editable)
	@touch $@ $(PROGRAM) $(BUILD)

# An environment with the test tools has the other parts too.
layer = $(if $(wildcard $(READY)),$(READY),$(1))

demo: $(call layer,$(PROGRAM))
	@$(PY) examples/demo.py $(if $(VERBOSE),--verbose)

wheel: $(call layer,$(BUILD))
	rm -rf $(DIST)
	SOURCE_DATE_EPOCH=315532800 $(VENV)/bin/hatchling build --target wheel --directory $(DIST)
	cd $(DIST) && sha256sum -- *.whl > SHA256SUMS && cat SHA256SUMS

test: $(READY)
	$(PY) -m pytest -n auto -m "not slow"

quick: $(READY)
	tests=$$($(PY) -m tests.support.quick $(ROOM)) && $(PY) -m pytest -n auto -q -m "not slow" $$tests

test-slow: $(READY)
	GITOPS_TESTS=full $(PY) -m pytest -n auto -m "slow or law"

test-gitea: $(READY)
	$(PY) -m tests.support.forges.gitea_program
	rm -f build/gitea-calls.txt
	GITOPS_GITEA_CALLS=build/gitea-calls.txt $(PY) -m pytest -n auto -q -m gitea
	@grep -c . build/gitea-calls.txt | sed 's/$$/ lines in build\/gitea-calls.txt/'

faults: $(READY)
	$(PY) -m pytest -n auto -q tests/fault/test_matrix.py tests/fault/test_atomic_matrix.py tests/fault/test_tick_faults.py

engine-faults: $(READY)
	$(PY) -m pytest -n 2 -q tests/fault/test_engine_campaign.py

fuzz: $(READY)
	$(PY) -m tests.fuzz

fuzz-records: $(READY)
	$(PY) -m tests.fuzz.records

fuzz-crash: $(READY)
	$(PY) -m tests.fuzz.crash --seconds 600

trust-night: $(READY)
	$(PY) -m tests.fuzz.histories --seed $(or $(SEED),0) --count $(or $(COUNT),100000)

migration-night: $(READY)
	$(PY) -m tests.fuzz.migrations --seed $(or $(SEED),0) --count $(or $(COUNT),100000)

policy-night: $(READY)
	$(PY) -m tests.symcc.night $(or $(SYMCC),$(HOME)/.cache/gitops-symcc) --seed $(or $(SEED),1) --count $(or $(COUNT),10000)

mutants: $(READY)
	$(PY) -m tests.mutants

lint: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/zizmor --offline --no-progress --quiet .github
	$(VENV)/bin/actionlint
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-actions .github/actions/*/action.yml

figures: $(READY)
	$(PY) -m tests.support.figures

$(RIVALS): requirements-bench.lock $(READY)
	$(PY) -m pip install --quiet --require-hashes --requirement requirements-bench.lock \
	  || echo 'There is nothing to compare the graph engine with: that part will be left out.'
	@touch $@

bench: $(RIVALS)
	$(PY) -m tests.bench

docs: $(READY)
	$(PY) -m tests.support.codes_page
	$(PY) -m tests.support.cli_page
	$(PY) -m tests.support.rules_page
	$(PY) -m tests.support.keys_page
	$(PY) -m tests.support.hosts_page
	$(PY) -m tests.support.openapi_page
	$(PY) -m tests.support.verbs_page
	$(PY) -m tests.support.limits_page
	$(PY) -m tests.support.demo_page

$(SITE)/.ready: requirements-docs.lock
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --require-hashes --requirement requirements-docs.lock
	@touch $@

docs-site docs-serve docs-publish: export NO_MKDOCS_2_WARNING := 1

docs-site: $(SITE)/.ready
	$(SITE)/bin/mkdocs build

docs-serve: $(SITE)/.ready
	$(SITE)/bin/mkdocs serve

docs-publish: $(SITE)/.ready
	PATH="$(CURDIR)/$(SITE)/bin:$$PATH" mike deploy --update-aliases $(VERSION) $(ALIAS)
	$(if $(ALIAS),PATH="$(CURDIR)/$(SITE)/bin:$$PATH" mike set-default $(ALIAS))
	$(PY) -m tests.support.comment_pages

pictures: $(READY)
	@command -v chromium && command -v pngquant || { echo 'Install the Debian packages chromium and pngquant'; exit 1; }
	$(PY) -m tests.support.comment_pages pictures

lock:
	uv pip compile pyproject.toml --extra s3 --group build --group test --group lint --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet --output-file requirements.lock
	$(PY) -m tests.support.runtime_lock
	uv pip compile --group bench --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet --output-file requirements-bench.lock
	uv pip compile --group docs --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet --output-file requirements-docs.lock

clean:
	rm -rf $(VENV) $(SITE) build dist demo bench.json .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
