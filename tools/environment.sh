#!/bin/sh
# environment.sh FOLDER LOCK…: make a virtual environment with exactly what the locks name, or say in one sentence why not.
set -eu
folder=$1
shift
tools=$(dirname "$0")
python=$(sh "$tools/python.sh")

log=$(mktemp)
watcher=
trap 'stop_watching; rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# In a terminal, one line shows how many of a lock's packages pip has.
watch() {
    [ -t 2 ] || return 0
    (
        trap 'exit 0' TERM INT
        seconds=0
        while sleep 1; do
            seconds=$((seconds + 1))
            printf '\r\033[K%s: %s of %s packages, %s s' \
                "$folder" "$(grep -c '^Collecting ' "$log")" "$(grep -c '==' "$1")" "$seconds" >&2
        done
    ) &
    watcher=$!
}
stop_watching() {
    [ -n "$watcher" ] || return 0
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    watcher=
    printf '\r\033[K' >&2
}

attempt() {
    if ! "$@" >"$log" 2>&1; then
        stop_watching
        if grep -q -i -E 'NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|name resolution|unreachable' "$log"; then
            echo "The packages could not be fetched: connect to the network for this first run, or set PIP_INDEX_URL to your mirror." >&2
        else
            tail -n 40 "$log" >&2
            echo "The environment in $folder could not be made; pip's last words are above." >&2
        fi
        exit 1
    fi
}

[ -x "$folder/bin/python" ] || attempt "$python" -m venv "$folder"
# pyspark comes as a source archive. It is built with the locked backend, not with whatever is newest today.
attempt "$folder/bin/python" -m pip install --disable-pip-version-check --require-hashes --no-deps -r "$tools/constraints-build.txt"
for lock in "$@"; do
    watch "$lock"
    attempt "$folder/bin/python" -m pip install --disable-pip-version-check --require-hashes --no-deps --no-build-isolation -r "$lock"
    stop_watching
done
