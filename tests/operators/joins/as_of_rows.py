"""Rows of both sides of joins as of a time, and the answer by comparing each row with each other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from upstream.core.pushdown.ipc_frames import to_frame
from upstream.core.rows.sort_keys import in_order
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.core.watermark.bounds import times_of_bounds
from upstream.operators.runtime.feeds import ENDED, punctuation_rows

LEFT = pa.schema([("k", pa.string()), ("t", pa.int64()), ("a", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
RIGHT = pa.schema([("k", pa.string()), ("t", pa.int64()), ("b", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def frame(schema, rows, bound, feed):
    """Rows (key, time, number, deleted), and then punctuation."""
    columns = [pa.array([row[at] for row in rows], schema.field(at).type) for at in range(3)]
    numbers = np.array([row[2] for row in rows], dtype=np.int64)
    deleted = np.array([row[3] for row in rows], dtype=np.bool_)
    system = system_array(source=feed, seq=numbers, arrival_us=numbers, deleted=deleted)
    table = pa.table([*columns, system], schema=schema)
    if bound is not None:
        kind = schema.field("t").type
        at = times_of_bounds([bound], kind, lambda one: in_order(one, kind))
        table = pa.concat_tables([table, punctuation_rows(table.schema, [feed], 0, t=at)])
    return [to_frame(table)] if table.num_rows else []


@st.composite
def streams(draw):
    """The rows of the left and of the right, and batches of both: rows and bound of the left, and of the right."""
    both = []
    for deletions in (False, True):
        rows = []
        for number in range(draw(st.integers(0, 12))):
            deleted = deletions and draw(st.integers(0, 3)) == 0
            rows.append((draw(st.sampled_from(["x", "y", None])), draw(st.integers(-6, 14)), number, deleted))
        both.append(rows)
    count = draw(st.integers(1, 5))
    # The arrival order is that of the numbers, so that ties are decided alike.
    places = [sorted(draw(st.integers(0, count - 1)) for _ in rows) for rows in both]
    batches = []
    for batch in range(count):
        cells = []
        for rows, place in zip(both, places, strict=True):
            later = [row[1] for row, at in zip(rows, place, strict=True) if at > batch]
            bound = ENDED if batch == count - 1 else draw(st.none() | st.integers(-8, min(later, default=20)))
            cells += [[row for row, at in zip(rows, place, strict=True) if at == batch], bound]
        batches.append(tuple(cells))
    return both, batches


def expected(left, right, how, tolerance):
    """Pairs of numbers; None for no partner."""
    found = []
    for key, time, number, _ in left:
        known = [row for row in right if row[0] is not None and row[0] == key and row[1] <= time]
        known = [row for row in known if tolerance is None or row[1] >= time - tolerance]
        newest = max(known, key=lambda row: (row[1], row[2]), default=None)
        partner = None if newest is None or newest[3] else newest[2]
        if partner is not None or how == "left":
            found.append((number, partner))
    return sorted(found, key=str)
