#!/bin/sh
# install.sh PYTHON [WHEEL]: install this project for real, not editable: Spark finds data sources by listing the folders of
# sys.path, and an editable install hides pyspark_upstream from it.
set -eu
python=$1
wheel=${2:-}
if [ -z "$wheel" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    sh "$(dirname "$0")/wheel.sh" "$python" "$folder"
    wheel=$(echo "$folder"/*.whl)
fi
"$python" -m pip install --disable-pip-version-check --quiet --no-index --no-deps --force-reinstall "$wheel"
