"""Batches of a join by time: plans, frames, and drawn streams that are cut into batches."""

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from upstream.core.rows.frames import to_frame
from upstream.core.rows.sort_keys import in_order
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.core.watermark.bounds import times_of_bounds
from upstream.operators.joins.band import IntervalBand, TumblingBand
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.runtime.feeds import ENDED, punctuation_rows

LEFT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("a", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
RIGHT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("b", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
HOWS = ("inner", "left", "right", "full", "semi", "anti")


def texts(schema):
    return pa.schema([pa.field("k", pa.string()), *list(schema)[1:]])


def plan(band=None, how="inner", left=LEFT, right=RIGHT, **changes):
    sides = JoinSide(("k",), "t", left), JoinSide(("k",), "t", right)
    return JoinPlan(*sides, band or IntervalBand(2, 3), how=how, **changes)


def frame(schema, rows, bound=None, feed="feed", deleted=False, covered=1):
    """Rows (key, time, number), and then punctuation."""
    n = len(rows)
    columns = [pa.array([row[at] for row in rows], schema.field(at).type) for at in range(3)]
    numbers = np.array([row[2] for row in rows], dtype=np.int64)
    system = system_array(
        source=feed, seq=numbers, arrival_us=numbers, covered=np.full(n, covered),
        deleted=np.full(n, deleted, dtype=np.bool_),
    )  # fmt: skip
    table = pa.table([*columns, system], schema=schema)
    if bound is not None:
        kind = schema.field("t").type
        at = times_of_bounds([bound], kind, lambda one: in_order(one, kind))
        table = pa.concat_tables([table, punctuation_rows(table.schema, [feed], 0, t=at)])
    return to_frame(table)


@st.composite
def streams(draw, texts=False):
    keys = st.sampled_from(["x", "y", None] if texts else [1, 2, None])
    both = []
    for _ in range(2):
        rows = [(draw(keys), draw(st.integers(-12, 24)), number) for number in range(draw(st.integers(0, 14)))]
        both.append(rows)
    count = draw(st.integers(1, 4))
    places = [[draw(st.integers(0, count - 1)) for _ in rows] for rows in both]
    batches = []
    for batch in range(count):
        cells = []
        for rows, place in zip(both, places, strict=True):
            later = [row[1] for row, at in zip(rows, place, strict=True) if at > batch]
            bound = draw(st.none() | st.integers(-14, min(later, default=30)))
            if batch == count - 1:
                bound = ENDED
            cells += [[row for row, at in zip(rows, place, strict=True) if at == batch], bound]
        batches.append(tuple(cells))
    return both, batches


BANDS = st.one_of(
    st.tuples(st.integers(-3, 6), st.integers(-3, 6)).filter(lambda pair: sum(pair) >= 0).map(
        lambda pair: IntervalBand(*pair)
    ),
    st.integers(1, 7).map(TumblingBand),
)  # fmt: skip


def meets(band):
    if isinstance(band, TumblingBand):
        return lambda left, right: left[1] // band.size == right[1] // band.size
    return lambda left, right: -band.before <= right[1] - left[1] <= band.after
