#!/bin/sh
# python.sh [java]: print a Python that this project runs on, or say in one sentence what is missing. With `java`, look at Java too.
# PYTHON=/path/to/python picks one.
here=$(dirname "$0")
for candidate in ${PYTHON:-python3 python3.12 python3.11 python3.10 python}; do
    # A shim may be on the PATH and still not run.
    "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))' 2>/dev/null || continue
    [ "${1:-}" != java ] || "$candidate" "$here/../conf/java.py" || exit 1
    if ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "$candidate cannot make virtual environments: install its venv module (on Debian and Ubuntu: apt install python3-venv)." >&2
        exit 1
    fi
    command -v "$candidate"
    exit 0
done
echo "There is no Python 3.10, 3.11 or 3.12 here: install one of them and put it on the PATH, or set PYTHON to it." >&2
exit 1
