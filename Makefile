# `make demo` and `make test` make what they need (an environment, Delta's jars) and run. A second run downloads nothing.

VENV ?= .venv
# A wheel to install instead of this folder.
WHEEL ?=
PYTEST_ARGS ?=
# How many processes test side by side; 0 is this one. Tests that share a Spark session or a broker run in one of them.
WORKERS ?= 2
# Which eighth of the costly tests runs beside the core, and the seed of the properties' examples.
SLICE ?= $(shell cat tests/slice)
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
# JVMs of tests live for seconds: compiling their code twice takes longer than it saves.
jit := -XX:TieredStopAtLevel=1
# Tests whose JVMs decide about archives of classes neither make one nor depend on one.
plain := -Xshare:auto

python := $(VENV)/bin/python
packages := $(shell sh tools/packages.sh)
sources := pyproject.toml README.md LICENSE NOTICE $(wildcard *.py) py.typed $(shell find $(packages) -type f -not -name '*.pyc')
lint := .cache/lint
readers := .cache/readers
engines := .cache/engines
build := .cache/build
connect := .cache/connect
mutants := .cache/mutants
browser := .cache/browser
site := .cache/docs
KERNELS ?=

.PHONY: demo demo-kafka test test-all quick mutants lint reference sizes docs railroads release format wheel screenshots pyfiles lock clean

demo: $(VENV)/.installed
	@$(python) examples/demo.py

demo-kafka: $(VENV)/.installed
	@$(python) examples/demo_kafka.py

# What runs the tests: with bytecode of the tests, which saves most of their collection.
pytest = env -u PYTHONDONTWRITEBYTECODE UPSTREAM_TESTED=$(abspath $(VENV)) \
    SPARK_SUBMIT_OPTS="$(jit) $(1) $$SPARK_SUBMIT_OPTS" \
    $(VENV)/bin/pytest tests -n $(WORKERS) --dist loadscope --no-loadscope-reorder --hypothesis-seed=$(SEED)

# The core, the tests of what changed since tests/slice did, and one slice of the rest. Eight slices run everything.
test: $(VENV)/.installed
	UPSTREAM_EXAMPLES=5 UPSTREAM_SCENARIOS=60 UPSTREAM_SEED=$$(($(SLICE) % 8 * 60)) $(call pytest,$(plain)) -m "not long" \
	    --tier=core --tier=touched --tier=slice --slice=$(SLICE) $(PYTEST_ARGS)

# Everything but the tests marked long, with more examples and scenarios. A JVM that maps the archive of classes starts sooner.
test-all: $(VENV)/.installed
	-$(python) -I -m upstream.conf.jvm
	UPSTREAM_EXAMPLES=25 UPSTREAM_SCENARIOS=200 $(call pytest) -m "not long" $(PYTEST_ARGS)

# Before each commit: rules and types, and beside them the tests that start nothing but Python, without those that take
# a quarter of their time.
longest := put_back_is_found or all_slots_together or as_it_is_written or not_in_a_stored_relation or death_at_any_step or test_runner
quick: $(VENV)/.installed $(lint)/.locked
	@$(MAKE) --no-print-directory lint >.cache/lint.log 2>&1 & lint=$$!; \
	UPSTREAM_EXAMPLES=2 UPSTREAM_SCENARIOS=20 $(call pytest,$(plain)) --tier=plain -m "not long" -k "not ($(longest))" -q $(PYTEST_ARGS); tests=$$?; \
	wait $$lint || { cat .cache/lint.log; exit 1; }; exit $$tests

# For a night: which changed lines of the kernels no test notices. KERNELS="newest panes" runs some.
mutants: $(mutants)/.locked
	$(mutants)/bin/python tools/mutants.py $(KERNELS)

lint: $(VENV)/.installed $(lint)/.locked
	$(lint)/bin/ruff check .
	$(lint)/bin/ruff format --check .
	$(lint)/bin/basedpyright --pythonpath $(abspath $(python))

# The pages that are made from code: API, command line, options, functions of continuous queries.
reference: $(VENV)/.installed
	$(python) tools/reference.py > docs/reference.md
	$(python) tools/reference.py command-line > docs/command-line.md
	$(VENV)/bin/upstream options > docs/options.md
	$(python) tools/functions.py > docs/functions.md

# What the package weighs, beside the limits of a test; LOWER=1 lowers the limits that it has fallen below.
sizes: $(VENV)/.installed
	$(python) tools/sizes.py $(if $(LOWER),--lower)

# dist/site: open dist/site/index.html. A broken link or reference is an error.
docs: $(site)/.locked
	$(site)/bin/python tools/draw_grammar.py --check
	$(site)/bin/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env -b html docs dist/site

# The pictures of the workbench, docs/figures/workbench-*.png. They need Debian's package chromium.
screenshots: $(VENV)/.installed $(browser)/.locked
	PYTHONPATH="tests:$$(echo $(browser)/lib/python*/site-packages)" $(python) tools/screenshots.py $(PAGES)

# The drawings of the grammar of continuous queries, docs/figures/grammar-*.svg.
railroads: $(site)/.locked
	$(site)/bin/python tools/draw_grammar.py

format: $(lint)/.locked
	$(lint)/bin/ruff check --fix .
	$(lint)/bin/ruff format .

# dist/*.whl
wheel: $(build)/.locked
	@sh tools/wheel.sh $(abspath $(build)/bin/python) dist

# dist/release: wheel, source archive, software bill of materials, container file, checksums. Commit first.
release: $(VENV)/.installed
	@sh tools/release.sh $(abspath $(python)) dist/release

# dist/pyspark-upstream.zip, for spark-submit --py-files: docs/cluster.md
pyfiles: $(build)/.locked
	@sh tools/pyfiles.sh $(abspath $(build)/bin/python) dist

# Newer versions of everything: read the difference before you commit it.
lock:
	@sh tools/lock.sh

clean:
	rm -rf $(VENV) .cache dist demo-output

$(VENV)/.locked: constraints.txt tools/constraints-build.txt
	@sh tools/python.sh java >/dev/null
	@echo "Making the environment $(VENV): this fetches about 700 MB, once."
	@sh tools/environment.sh $(VENV) constraints.txt
	@touch $@

$(VENV)/.installed: $(VENV)/.locked $(if $(WHEEL),$(WHEEL),$(sources))
	@sh tools/python.sh java >/dev/null
	@sh tools/install.sh $(abspath $(python)) $(WHEEL)
	@$(python) -I -m upstream.conf.jars
	@touch $@

# What builds a wheel: 2 MB.
$(build)/.locked: tools/constraints-build.txt
	@sh tools/environment.sh $(build)
	@touch $@

$(lint)/.locked: tools/constraints-lint.txt tools/constraints-build.txt
	@sh tools/environment.sh $(lint) tools/constraints-lint.txt
	@touch $@

$(site)/.locked: tools/constraints-docs.txt tools/constraints-build.txt
	@sh tools/environment.sh $(site) tools/constraints-docs.txt
	@touch $@

# What tests start or ask as others do: clients of BI tools, other engines, a server of the S3 protocol.
$(readers)/.locked: tools/constraints-readers.txt tools/constraints-build.txt
	@sh tools/environment.sh $(readers) tools/constraints-readers.txt
	@touch $@

# What PySpark needs beside its dependencies for Spark Connect and for pipelines. Tests put it on the path of $(VENV)'s Python.
$(connect)/.locked: tools/constraints-connect.txt tools/constraints-build.txt
	@sh tools/environment.sh $(connect) tools/constraints-connect.txt
	@touch $@

# Drives Chromium, for tests and pictures of the workbench. Tests put it on the path of $(VENV)'s Python.
$(browser)/.locked: tools/constraints-browser.txt tools/constraints-build.txt
	@sh tools/environment.sh $(browser) tools/constraints-browser.txt
	@touch $@

$(mutants)/.locked: constraints.txt tools/constraints-mutants.txt tools/constraints-build.txt
	@sh tools/environment.sh $(mutants) constraints.txt tools/constraints-mutants.txt
	@touch $@

# The same for tests marked long, and too large for each run: ClickHouse, and a Java for Trino.
$(engines)/.locked: tools/constraints-engines.txt tools/constraints-build.txt
	@sh tools/environment.sh $(engines) tools/constraints-engines.txt
	@touch $@
