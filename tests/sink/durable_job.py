"""Batches into a table, for strace: arguments are the folder, the options as JSON, and a file in which each committed
batch is acknowledged.

Each batch b puts the rows (key, b, "b") of some keys, and deletes one; another process commits nothing.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from kit.sink import Sink

from upstream.sink.merge import engines as folding

BATCHES = 8


def changes(batch_id: int) -> dict[int, tuple[int, str] | None]:
    """What a batch does: rows by key, None for a deletion."""
    keys = range(6) if batch_id == 0 else [batch_id % 5, (batch_id * 3) % 7]
    done: dict[int, tuple[int, str] | None] = dict.fromkeys(keys, (batch_id + 1, str(batch_id)))
    if batch_id:
        done[(batch_id * 3) % 7] = None
    return done


def table_after(batches: int) -> dict[int, tuple[int, str]]:
    rows: dict[int, tuple[int, str] | None] = {}
    for batch_id in range(batches):
        rows.update(changes(batch_id))
    return {key: row for key, row in rows.items() if row is not None}


def write(sink: Sink, batch_id: int) -> None:
    done = changes(batch_id)
    gone = np.array([row is None for row in done.values()])
    rows = [(key, *(row or (batch_id + 1, None))) for key, row in done.items()]
    sink.batch(batch_id, [sink.rows(rows, seq=100 * batch_id, deleted=gone)])


def main(folder: str, options: str, acknowledgements: str) -> None:
    sink = Sink(Path(folder), options=json.loads(options))
    if sink.options.get("engine") == "vectors":
        # Else so few rows are put together with each batch, and none is marked as dead.
        folding._FREE_ROWS, folding._FREE_SHARE = 0, 2
    handle = os.open(acknowledgements, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for batch_id in range(BATCHES):
        write(sink, batch_id)
        os.write(handle, b"%d" % batch_id)


if __name__ == "__main__":
    main(*sys.argv[1:])
