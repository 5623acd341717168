#!/bin/sh
# pyfiles.sh PYTHON FOLDER: FOLDER/pyspark-upstream.zip for spark-submit --py-files. It is the wheel under a name that Spark takes.
set -eu
sh "$(dirname "$0")/wheel.sh" "$1" "$2"
mv "$2"/pyspark_upstream-*.whl "$2/pyspark-upstream.zip"
echo "$2/pyspark-upstream.zip"
