"""Rows and batches of joins: true bounds of single keys in drawn ones, and shards that run them."""

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from kit.join_batches import LEFT, RIGHT, frame, streams, texts
from kit.key_promises import KeyPromises

from upstream.core.rows.frames import split_punctuation, to_frame
from upstream.core.rows.sort_keys import in_order
from upstream.core.rows.system_column import system_array
from upstream.core.watermark.bounds import times_of_bounds
from upstream.operators.runtime.feeds import ENDED, punctuation_rows
from upstream.operators.state.store import DictStore

INTEGERS, TEXTS = (LEFT, RIGHT), (texts(LEFT), texts(RIGHT))


def table(schema, rows, source="f", **system):
    """Rows as tuples, the system column aside; they arrive one after the other."""
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(list(schema)[:-1])]
    numbers = np.arange(len(rows))
    given = {"seq": numbers, "arrival_us": numbers, **system}
    return pa.table([*columns, system_array(source=source, **given)], schema=schema)


def frames(schema, rows, bound=None, claims=(), feed="f"):
    """Rows (key, time, number, and of deletions True), the feed's bound, and bounds of keys."""
    given = []
    if rows or bound is not None:
        given.append(frame(schema, rows, bound, feed, deleted=[row[3:] == (True,) for row in rows]))
    for key, at in claims:
        time = times_of_bounds([at], pa.int64(), lambda one: in_order(one, pa.int64()))
        named = pa.array([key], schema.field("k").type)
        given.append(to_frame(punctuation_rows(schema, [feed], 0, t=time, k=named).cast(schema)))
    return given


@st.composite
def claimed(draw, streams, keys):
    """Batches of drawn streams, each with true bounds of keys of both sides besides."""
    both, batches = draw(streams)
    found = []
    for at, batch in enumerate(batches):
        claims = []
        for side in (0, 2):
            rest = [row for later in batches[at + 1 :] for row in later[side]]
            claims.append([])
            for key in draw(st.lists(st.sampled_from(keys), max_size=3)):
                least = min((row[1] for row in rest if row[0] == key), default=ENDED)
                claims[-1].append((key, least if draw(st.booleans()) else min(least, draw(st.integers(-14, 30)))))
        found.append((*batch, *claims))
    return both, found


def run_all(shard, join, batches, store=None):
    """Pairs of numbers, -1 for none, promises and reports of each batch, by a shard that has just read its state.

    A batch is (left rows, left bound, right rows, right bound), and perhaps bounds of keys of both.
    """
    store = DictStore() if store is None else store
    found, promises, reports, of_keys = [], [], [], KeyPromises()
    time = getattr(join, "time", join.left.time)
    for number, (left, left_bound, right, right_bound, *claims) in enumerate(batches):
        of_left, of_right = claims or ((), ())
        result, report = shard(0, join, store).run(
            frames(join.left.schema, left, left_bound, of_left, "left/f"),
            frames(join.right.schema, right, right_bound, of_right, "right/f"),
            number,
        )
        if report.left_late + report.right_late == 0:
            of_keys.check(result, ("k",), time)
        rows, punctuation = ([], []) if result is None else (part.to_pylist() for part in split_punctuation(result))
        found.append([tuple(-1 if row.get(name) is None else row[name] for name in "ab") for row in rows])
        promises.append(next((row[time] for row in punctuation if row["k"] is None), None))
        reports.append(report)
    return found, promises, reports


@st.composite
def as_of_streams(draw, texts=True):
    """Rows are numbered as they arrive, so that ties are decided alike; those of the right may be deletions."""
    _, batches = draw(streams(texts=texts))
    both, numbered = ([], []), []
    for batch in batches:
        cells = []
        for known, side in zip(both, (0, 2), strict=True):
            deletions = [side == 2 and draw(st.integers(0, 3)) == 0 for _ in batch[side]]
            new = [
                (*row[:2], len(known) + at, gone)
                for at, (row, gone) in enumerate(zip(batch[side], deletions, strict=True))
            ]
            known.extend(new)
            cells += [new, batch[side + 1]]
        numbered.append(tuple(cells))
    return both, numbered


def as_of_expected(left, right, how, tolerance):
    """Pairs of numbers by comparing each row with each other, -1 for no partner."""
    found = []
    for key, time, number, _ in left:
        known = [row for row in right if row[0] is not None and row[0] == key and row[1] <= time]
        known = [row for row in known if tolerance is None or row[1] >= time - tolerance]
        newest = max(known, key=lambda row: (row[1], row[2]), default=None)
        partner = -1 if newest is None or newest[3] else newest[2]
        if partner >= 0 or how == "left":
            found.append((number, partner))
    return sorted(found)


def flat(found):
    return sorted(pair for pairs in found for pair in pairs)
