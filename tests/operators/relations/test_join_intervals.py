"""Joins whose conditions bound the times of both sides: what is dropped is not missed, and nothing is kept for long."""

import functools
from collections import Counter
from datetime import timedelta
from itertools import product
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import EPOCH

from upstream.conf.errors import QueryRefusedError
from upstream.operators.relations import physical_plan
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.plan.nodes import Stream
from upstream.operators.state.store import DictStore
from upstream.sql import Catalog, bind

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
CATALOG = Catalog({name: Stream(name, SCHEMA, event_time="t") for name in ("a", "b")})
MINUTE_US = 60_000_000
START_US = int(EPOCH.timestamp() * 1_000_000)
CONDITIONS = (
    "a.t BETWEEN b.t - INTERVAL '2' MINUTES AND b.t + INTERVAL '3' MINUTES",
    "a.t BETWEEN b.t AND b.t + INTERVAL '1' MINUTES",
    "a.t BETWEEN b.t - INTERVAL '4' MINUTES AND b.t - INTERVAL '2' MINUTES",
    "a.t = b.t",
    "a.t >= b.t AND a.t < b.t + INTERVAL '2' MINUTES AND a.n < b.n",
)
WINDOWS = ("", "[RANGE 3 MINUTES]", "[RANGE 4 MINUTES SLIDE 2 MINUTES]", "[NOW]", "[ROWS 2]")
FORMS = (
    *(
        f"SELECT a.k, a.n, b.n AS m, a.t, b.t AS u FROM a {{a}} AS a {how} JOIN b {{b}} AS b ON a.k = b.k AND {{on}}"
        for how in ("", "LEFT", "RIGHT", "FULL")
    ),
    "SELECT a.n, a.t, b.t AS u FROM a {a} AS a JOIN b {b} AS b ON {on}",
    "SELECT k, n, t FROM a {a} AS a WHERE EXISTS (SELECT 1 FROM b {b} AS b WHERE a.k = b.k AND {on})",
    "SELECT k, n, t FROM a {a} AS a WHERE NOT EXISTS (SELECT 1 FROM b {b} AS b WHERE a.k = b.k AND {on})",
    "SELECT a.n, c.n AS m FROM a {a} AS a JOIN b {b} AS b ON a.k = b.k AND {on} JOIN a AS c ON c.k = b.k AND c.t = b.t",
)


def frame(rows):
    kinds = {"k": pl.String(), "n": pl.Int64(), "t": pl.Datetime("us", "UTC")}
    return pl.DataFrame(rows, schema=kinds, orient="row")


@functools.cache
def bounded(form):
    """The windows with which a query is not refused, as it is where rows of one side are needed for ever."""

    def is_bounded(left, right):
        try:
            bind(form.format(a=left, b=right, on=CONDITIONS[0]), CATALOG)
        except QueryRefusedError:
            return False
        return True

    return [each for each in product(WINDOWS, WINDOWS) if is_bounded(*each)]


@st.composite
def steps(draw):
    """Rows of both streams by step, and the low-watermarks in minutes: none is late."""
    ends = [*sorted(draw(st.sets(st.integers(1, 15), min_size=1, max_size=5))), 40]
    begins = [0, *ends[:-1]]
    found: list[dict[str, list[tuple[Any, ...]]]] = [{"a": [], "b": []} for _ in ends]
    for stream in ("a", "b"):
        for minute, k, n in draw(
            st.lists(st.tuples(st.integers(0, 15), st.sampled_from(["x", "y", None]), st.integers(0, 2)), max_size=8)
        ):
            step = draw(st.sampled_from([at for at, begin in enumerate(begins) if begin <= minute]))
            found[step][stream].append((k, n, EPOCH + timedelta(minutes=minute)))
    return [
        ({name: frame(rows) for name, rows in each.items()}, START_US + end * MINUTE_US)
        for each, end in zip(found, ends, strict=True)
    ]


def added(store, plan, *, drops, collapse):
    evaluation = Evaluation(store)
    if drops:
        evaluation.add("q", plan, collapse=collapse)
    else:
        with patch.object(physical_plan, "needed_of", lambda _: (None, None)):
            evaluation.add("q", plan, collapse=collapse)
    return evaluation


def counted(changes):
    found: Counter[tuple[Any, ...]] = Counter()
    for *row, weight in changes.rows():
        found[tuple(row)] += weight
    return Counter({row: count for row, count in found.items() if count})


@pytest.mark.parametrize("form", FORMS)
@given(
    on=st.sampled_from(CONDITIONS), draw=st.data(), given_steps=steps(), collapse=st.booleans(), restarts=st.booleans()
)
def test_what_is_dropped_is_not_missed(form, on, draw, given_steps, collapse, restarts):
    left, right = draw.draw(st.sampled_from(bounded(form)))
    plan = shareable(bind(form.format(a=left, b=right, on=on), CATALOG).plan)
    mine, other = DictStore(), DictStore()
    dropping = added(mine, plan, drops=True, collapse=collapse)
    keeping = added(other, plan, drops=False, collapse=collapse)
    for rows, until in given_steps:
        found, expected = dropping.step(rows, until), keeping.step(rows, until)
        assert not found.failed
        assert counted(found.changes["q"]) == counted(expected.changes["q"])
        assert dropping.rows_kept <= keeping.rows_kept
        dropping.save()
        keeping.save()
        if restarts:
            dropping = added(mine, plan, drops=True, collapse=collapse)
            keeping = added(other, plan, drops=False, collapse=collapse)


@pytest.mark.parametrize("form", FORMS[:7])
def test_rows_are_kept_for_twice_the_interval_at_most(form):
    plan = shareable(bind(form.format(a="", b="", on=CONDITIONS[0]), CATALOG).plan)
    evaluation = added(DictStore(), plan, drops=True, collapse=False)
    kept: list[int] = []
    for minute in range(30):
        row = frame([("x", minute, EPOCH + timedelta(minutes=minute))])
        # The keys of today do not come again tomorrow.
        row = row.with_columns(pl.lit(f"x{minute // 3}").alias("k"))
        evaluation.step({"a": row, "b": row}, START_US + minute * MINUTE_US + 1)
        kept.append(evaluation.rows_kept)
    assert max(kept[10:]) <= 2 * 2 * 4
    evaluation.step({}, START_US + 60 * MINUTE_US)
    assert evaluation.rows_kept == 0


def test_a_query_that_begins_where_rows_were_dropped_is_not_said_to_be_whole():
    sql = FORMS[0].format(a="", b="", on=CONDITIONS[0])
    plan = shareable(bind(sql, CATALOG).plan)
    counts = shareable(bind(f"SELECT COUNT(*) AS c FROM ({sql}) AS j", CATALOG).plan)
    evaluation = added(DictStore(), plan, drops=True, collapse=False)
    row = frame([("x", 1, EPOCH)])
    evaluation.step({"a": row, "b": row}, START_US + MINUTE_US)
    evaluation.step({}, START_US + 30 * MINUTE_US)
    evaluation.add("counts", counts)
    evaluation.step({}, START_US + 31 * MINUTE_US)
    assert evaluation.whole_from("counts") is None
