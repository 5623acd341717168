#!/bin/sh
# wheel.sh PYTHON FOLDER: build the project's wheel into FOLDER. Built from a copy, so that nothing is left in the checkout, and no
# module comes back from an earlier build's leavings.
set -eu
python=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# shellcheck disable=SC2046 one argument for each folder
cp -R pyproject.toml README.md LICENSE NOTICE py.typed ./*.py $(sh tools/packages.sh) "$copy"
find "$copy" -name __pycache__ -type d -prune -exec rm -rf {} +
"$python" -m pip wheel --disable-pip-version-check --quiet --no-index --no-deps --no-build-isolation --wheel-dir "$folder" "$copy"
