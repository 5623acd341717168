#!/bin/sh
# packages.sh: the folders of this checkout that are installed, as pyproject.toml lists them.
set -eu
sed -n 's/^    "upstream\.\([a-z_]*\)",$/\1/p; s/^    "\(pyspark_upstream\)",$/\1/p' "$(dirname "$0")/../pyproject.toml"
