#!/bin/sh
# Archives the classes that a job of Spark's loads, for tests: a JVM that maps the archive starts in two thirds of the time.
# Usage: tools/classes.sh PYTHON ARCHIVE [JVM OPTIONS]
set -eu
python=$1
archive=$2
shift 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
echo "Archiving Spark's classes for the tests' JVMs, once."
# The JVM outlives Python, and writes the archive then: `cat` ends with the last of both. Warnings go to standard output, where tests read.
SPARK_SUBMIT_OPTS="$* -Xlog:disable -XX:ArchiveClassesAtExit=$archive" \
    "$python" "$(dirname "$0")/../examples/windows.py" --to "$home/speeds" 2>&1 | cat >"$home/log"
[ -s "$archive" ] || { cat "$home/log" >&2; exit 1; }
