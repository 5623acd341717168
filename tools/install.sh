#!/bin/sh
# install.sh PYTHON [WHEEL]: install this project for real, not editable: Spark finds data sources by listing the folders of
# sys.path, and an editable install hides pyspark_upstream from it.
set -eu
python=$1
what=${2:-.}
cd "$(dirname "$0")/.."
[ "$what" != . ] || rm -rf build pyspark_upstream.egg-info  # modules that are gone must not come back from there
"$python" -m pip install --disable-pip-version-check --quiet --no-index --no-deps --no-build-isolation --force-reinstall "$what"
[ "$what" != . ] || rm -rf build pyspark_upstream.egg-info
