"""What hosted queries add up to is what each gives by itself, however rows are ordered, divided, and run again."""

from collections import Counter
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import CATALOG, END_US, EPOCH, FORMS, QUOTE, TRADE, rows_of_streams
from kit.hosting import Arrivals, Tables, Versions, frame, groups_second, is_behind, run, scanned, windows_first
from kit.local_host import LocalHost

from upstream.hosting import host_plan
from upstream.hosting.messages import Command
from upstream.hosting.placement import placed
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.zsets import TIME
from upstream.operators.state.store import DictStore

HOSTABLE = tuple(each for each in FORMS if "Requests" not in each)


def contents(query, rows):
    """What a query by itself makes of all rows."""
    evaluation = Evaluation(DictStore(), clock="event")
    evaluation.add("q", shareable(query.result.plan))
    changes = query.result.of(evaluation.step(rows, END_US).changes["q"])
    found: Counter[tuple[Any, ...]] = Counter()
    for *row, weight in changes.drop(TIME).rows():
        found[tuple(row)] += weight
    assert all(weight >= 0 for weight in found.values())
    return +found


PLACINGS = {"placed": placed, "windows first": windows_first, "groups second": groups_second}


@pytest.mark.parametrize("placing", PLACINGS)
@given(
    texts=st.lists(st.sampled_from(HOSTABLE), min_size=1, max_size=6),
    rows=rows_of_streams(),
    shards=st.integers(1, 4),
    batches=st.integers(1, 3),
    draw=st.data(),
)
def test_hosted_queries_give_what_each_gives_by_itself(placing, texts, rows, shards, batches, draw):
    there = {f"q{number}": (number, text) for number, text in enumerate(texts, 1)}
    held = draw.draw(st.frozensets(st.integers(1, len(texts))))
    versions = Versions(dict.fromkeys((1, 2, 3), there), held={2: held})
    arrivals = Arrivals(rows, draw, batches)
    paused, resumed = sorted(draw.draw(st.tuples(*[st.integers(0, batches)] * 2)))
    with patch.object(host_plan, "placed", PLACINGS[placing]):
        host = LocalHost(versions, shards)
        tables = Tables(host.plan(1))
    for batch, tasks in enumerate(arrivals.batches):
        served = draw.draw(st.none() | st.frozensets(st.integers(1, len(texts)))) if batch < batches else None
        version = 1 + (batch >= paused) + (batch >= resumed)
        host = run(host, Command(batch, version, served=served), tasks, tables)
        assert served is None or tables.written <= served
        assert version != 2 or held.isdisjoint(tables.written)
    while is_behind(host):
        batch += 1
        host = run(host, Command(batch, 3), {}, tables)
    assert not tables.failed
    assert not tables.waiting
    assert not tables.late
    for number, text in enumerate(texts, 1):
        query = host.plan(1).queries[number]
        if query.domain.clock == "event" or query.result.kind == "latest":
            assert tables.contents(number) == contents(query, arrivals.rows), text
    assert set(tables.begun) == set(range(1, len(texts) + 1))


OUTER = """
    SELECT a.sym, b.sym AS other, COUNT(*) AS n FROM trade AS a {} JOIN quote AS b
    ON a.sym = b.sym AND b.t BETWEEN a.t - INTERVAL '5' MINUTE AND a.t + INTERVAL '3' MINUTE GROUP BY a.sym, b.sym
"""
OVER = 1 << 62


@given(rows_of_streams(), st.sampled_from(["LEFT", "RIGHT", "FULL"]), st.integers(1, 3), st.integers(1, 4), st.data())
def test_rows_without_a_partner_come_out_as_far_as_each_input_has_progress(rows, how, shards, batches, draw):
    """An input may be silent or have ended; after each batch, the table is what DuckDB gives for the rows so far."""
    text, database = OUTER.format(how), duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    host = LocalHost(Versions({1: {"q": (1, text)}}), shards)
    tables, sides = Tables(host.plan(1)), {each.name: (each, rows[each.name].sort("t")) for each in (TRADE, QUOTE)}
    at, bounds = dict.fromkeys(sides, 0), dict.fromkeys(sides, -OVER)
    for batch in range(batches + 1):
        tasks = {}
        for name, (stream, every) in sides.items():
            end = every.height if batch == batches else draw.draw(st.integers(at[name], every.height))
            bound = int(every["t"][end].timestamp() * 1e6) if end < every.height else OVER
            silent = batch < batches and draw.draw(st.booleans())
            bounds[name] = bounds[name] if silent else bound
            heard = {} if silent else {"f": None if bound == OVER else bound}
            if end > at[name] or heard:
                tasks[name] = [scanned(stream, every[at[name] : end], range(at[name] + 1, end + 1), heard)]
            at[name] = end
        host = run(host, Command(batch, 1), tasks, tables)
        for name, (_, every) in sides.items():
            database.register(name, every.filter(pl.col("t").dt.epoch("us") < min(bounds.values())).to_arrow())
        found = Counter({row[1:]: copies for row, copies in tables.contents(1).items()})
        assert found == Counter(database.execute(text).fetchall())
    assert not tables.failed
    assert not tables.late


FAILING = "SELECT sym, SUM(1 / n) AS r FROM trade [RANGE 10 MINUTES] GROUP BY sym"


@pytest.mark.parametrize("text", [FAILING, FAILING.replace("MINUTES]", "MINUTES SLIDE 1 MINUTE]")])
def test_a_query_that_failed_in_one_shard_begins_in_every_shard_without_what_was_there(text):
    """Its state in the shards where it had not failed is of no use: the others have lost theirs."""
    versions = Versions({1: {"q": (1, text)}, 2: {"q": (3, text)}}, failed=[1])
    host = LocalHost(versions, 4)
    syms, tables = [f"s{number}" for number in range(8)], Tables(host.plan(1))

    def batch(number, version, rows, bound_s):
        tables.plan = host.plan(version)
        bound = int((EPOCH + timedelta(seconds=bound_s)).timestamp() * 1_000_000)
        came = scanned(TRADE, frame(TRADE, rows), [number + 1] * len(rows), {"f": bound}, sequences=range(len(rows)))
        tables.take(host.batch(Command(number, version), {"trade": [came]}))

    def row(sym, n, second):
        return sym, 1.0, n, EPOCH + timedelta(seconds=second)

    batch(0, 1, [row(sym, 1, 1) for sym in syms], 70)
    assert tables.contents(1).total() == len(syms)
    batch(1, 1, [row("s0", 0, 71)], 130)
    assert tables.failed.keys() == {1}
    batch(2, 2, [row(sym, 2, 131) for sym in syms[:3]], 190)
    assert tables.contents(3) == Counter((sym, sym, 0.5) for sym in syms[:3])


def test_a_function_in_python_that_fails_stops_the_queries_that_call_it_alone():
    declared = "CREATE FUNCTION broken(x DOUBLE) RETURNS STRING AS 'kit.python_functions:broken'"
    catalog = CATALOG.with_function("broken", declared)
    texts = {
        "of values": (1, "SELECT sym, MAX(broken(px)) AS m FROM trade [RANGE 1 HOUR] GROUP BY sym"),
        "of routes": (2, "SELECT broken(px) AS b, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY broken(px)"),
        "other": (3, "SELECT sym, SUM(doubled(px)) AS s FROM trade [RANGE 1 HOUR] GROUP BY sym"),
    }
    host = LocalHost(Versions({1: texts}, catalog=catalog), 2)
    tables, bound = Tables(host.plan(1)), int((EPOCH + timedelta(seconds=9)).timestamp() * 1_000_000)
    came = scanned(TRADE, frame(TRADE, [("a", 1.5, 1, EPOCH + timedelta(seconds=1))]), [1], {"f": bound})
    tables.take(host.batch(Command(0, 1), {"trade": [came]}))
    assert {number: "OSError: no model for 1 rows" in reason for number, reason in tables.failed.items()} == {
        1: True,
        2: True,
    }
    assert tables.contents(3) == Counter([("a", "a", 3.0)])
