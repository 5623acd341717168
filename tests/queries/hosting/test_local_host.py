"""What hosted queries add up to is what each gives by itself, however rows are ordered, divided, and run again."""

from __future__ import annotations

import functools
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kit.continuous import BUSES, END_US, EPOCH, FORMS, TRADE, rows_of_streams
from kit.hosting import Arrivals, Tables, Versions, frame, groups_second, run, scanned, windows_first
from kit.registries import FAST, begun, register

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.zsets import TIME
from upstream.queries.hosting import host_plan
from upstream.queries.hosting.command_source import CommandPlanner
from upstream.queries.hosting.commands import Command
from upstream.queries.hosting.host_plan import Hosted
from upstream.queries.hosting.local_host import Left, LocalHost
from upstream.queries.hosting.outcome import outcome_of
from upstream.queries.hosting.reports import Reports
from upstream.queries.placing.placing import placed
from upstream.queries.registry.changes import Change
from upstream.queries.registry.editing import record
from upstream.queries.registry.registry import registry_at
from upstream.queries.relations.sharing import shareable
from upstream.storage.folder import folder_at

HOSTABLE = tuple(each for each in FORMS if "Requests" not in each)
Rows = dict[str, pl.DataFrame]


def contents(query: Hosted, rows: Rows) -> Counter[tuple[Any, ...]]:
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
def test_hosted_queries_give_what_each_gives_by_itself(
    placing: str, texts: list[str], rows: Rows, shards: int, batches: int, draw: st.DataObject
) -> None:
    versions = Versions({1: {f"q{number}": (number, text) for number, text in enumerate(texts, 1)}})
    arrivals = Arrivals(rows, draw, batches)
    with patch.object(host_plan, "placed", PLACINGS[placing]):
        host = LocalHost(versions, shards)
        tables = Tables(host.plan(1))
    for batch, tasks in enumerate(arrivals.batches):
        served = draw.draw(st.none() | st.frozensets(st.integers(1, len(texts)))) if batch < batches else None
        host = run(host, Command(batch, 1, served=served), tasks, tables)
        assert served is None or tables.written <= served
    assert not tables.failed
    assert not tables.waiting
    assert not tables.late
    for number, text in enumerate(texts, 1):
        query = host.plan(1).queries[number]
        if query.domain.clock == "event" or query.result.kind == "latest":
            assert tables.contents(number) == contents(query, arrivals.rows), text
    assert set(tables.begun) == set(range(1, len(texts) + 1))


class Clocked:
    """Batches as Spark plans them: by the source of commands, from what the last one has reported."""

    def __init__(self, place: str, texts: list[str], weights: list[float], shards: int) -> None:
        self.checkpoint = begun(Path(place))
        record(self.checkpoint, Change("view", "fast", FAST))
        for number, (text, weight) in enumerate(zip(texts, weights, strict=True)):
            register(self.checkpoint, f"q{number}", text, weight=weight)
        self.host = LocalHost(functools.partial(registry_at, self.checkpoint), shards)
        self.start()
        self.offset = self.planner.initial()
        self.batches = 0
        self.now_us = 100

    def start(self, batch_s: float | None = 1.0) -> None:
        """Begin again, as after a crash."""
        self.planner = CommandPlanner(self.checkpoint, (0,), batch_s)
        self.reports = Reports(folder_at(self.checkpoint))

    def plan(self) -> bool:
        """Plan a batch; return whether the source of commands wants one."""
        before, self.offset = self.offset, self.planner.plan(self.offset, self.now_us)
        return self.offset != before

    def run(self, tasks: dict[str, list[pa.Table]], tables: Tables, costs: dict[int, float]) -> frozenset[int]:
        """Run a batch of 0.5 s beside its results; return the queries that it has put out."""
        served = self.offset["served"]
        command = Command(
            self.batches, self.offset["version"], self.offset["tick"], None if served is None else frozenset(served)
        )
        plan = tables.plan = self.host.plan(command.version)
        left: list[Left] = []
        self.host = run(self.host, command, tasks, tables, left)
        found = ((replace(each.leaving, count=1).control(), each.frame) for each in left)
        outcome = outcome_of(found)
        took = {number: costs[number] for number in outcome.rows}
        for _ in range(2):  # a crash after the report: the batch runs again
            self.reports.take(self.batches, outcome, plan.queries, {}, 0.5 + sum(took.values()), took)
        self.batches += 1
        self.now_us += round((0.5 + sum(took.values())) * 1e6)
        assert set(tables.written) <= outcome.rows.keys()
        return frozenset(outcome.rows)


@given(
    texts=st.lists(st.sampled_from(HOSTABLE), min_size=2, max_size=6),
    rows=rows_of_streams(),
    shards=st.integers(1, 3),
    batches=st.integers(2, 5),
    draw=st.data(),
)
def test_what_waits_for_its_turn_comes_out_as_if_it_had_not_waited(
    texts: list[str], rows: Rows, shards: int, batches: int, draw: st.DataObject
) -> None:
    arrivals = Arrivals(rows, draw, batches)
    weights = [draw.draw(st.sampled_from([0.1, 1.0, 4.0])) for _ in texts]
    costs = {number: draw.draw(st.sampled_from([0.1, 0.5, 3.0])) for number in range(2, len(texts) + 2)}
    restarts = draw.draw(st.sets(st.integers(0, batches)))
    with tempfile.TemporaryDirectory() as place:
        job = Clocked(place, texts, weights, shards)
        tables = Tables(job.host.plan(len(texts) + 1))
        for batch, tasks in enumerate(arrivals.batches):
            if batch in restarts:
                job.start()
            if batch == 1:
                record(job.checkpoint, Change("alter", "q1", weight=9.0))
                job.start()
            job.plan()
            out = job.run(tasks, tables, costs)
            served = job.offset["served"]
            assert served is None or out <= set(served)
        # No more input comes: batches go on until nothing waits.
        drained = 0
        while job.plan():
            job.run({}, tables, costs)
            drained += 1
            assert drained <= 3 * len(texts)
        queries = job.host.plan(job.offset["version"]).queries
    assert not tables.failed
    assert not tables.waiting
    for number, query in queries.items():
        if query.domain.clock == "event" or query.result.kind == "latest":
            assert tables.contents(number) == contents(query, arrivals.rows), texts[number - 2]
    assert set(tables.begun) == set(queries)


def test_a_run_without_a_limit_ends_with_all_that_an_earlier_one_has_left() -> None:
    texts = [f"SELECT vehicle_id, speed + {number} AS v FROM LATEST(buses)" for number in range(6)]
    costs = dict.fromkeys(range(2, 8), 1.0)
    with tempfile.TemporaryDirectory() as place:
        job = Clocked(place, texts, [1.0] * 6, 2)
        tables = Tables(job.host.plan(7))
        for number in range(4):
            job.plan()
            rows = frame(BUSES, [(f"bus{number}", "r", float(number), EPOCH + timedelta(seconds=number))])
            job.run({"buses": [scanned(BUSES, rows, [number + 1])]}, tables, costs)
        assert len(tables.waiting) == 5, "one is put out in each batch"
        job.start(None)
        assert job.plan()
        job.run({}, tables, costs)
        assert not tables.waiting
        assert not job.plan()
    assert all(tables.contents(number).total() == 4 for number in range(2, 8))


CHANGING = (
    "SELECT sym, MAX(px) AS hi FROM trade [RANGE 10 MINUTES] GROUP BY sym",
    "SELECT sym, MAX(px) AS hi FROM trade [RANGE 10 MINUTES] GROUP BY sym EMIT CHANGES",
    "ISTREAM(SELECT sym, n FROM trade [RANGE 10 MINUTES] WHERE n > 0)",
    "SELECT a.sym, b.bid FROM trade [RANGE 5 MINUTES] AS a JOIN quote [RANGE 5 MINUTES] AS b ON a.sym = b.sym",
    "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id",
    "SELECT sym, SUM(1 / n) AS r FROM trade [RANGE 10 MINUTES] GROUP BY sym",
)


@pytest.mark.parametrize("placing", PLACINGS)
@settings(phases=[Phase.generate])  # it takes minutes to make an example smaller
@given(rows=rows_of_streams(), shards=st.integers(2, 4), draw=st.data())
def test_queries_that_come_go_and_fail_do_not_disturb_the_others(
    placing: str, rows: Rows, shards: int, draw: st.DataObject
) -> None:
    batches = 4
    texts = dict(enumerate(CHANGING, 1))
    spans = {number: sorted(draw.draw(st.tuples(st.integers(1, 4), st.integers(2, 6)))) for number in texts}
    spans = {number: (0, 9) if number in (2, 5) else span for number, span in spans.items()}
    versions = Versions(
        {
            at: {
                f"q{number}": (number, text)
                for number, text in texts.items()
                if spans[number][0] <= at < spans[number][1]
            }
            for at in range(1, batches + 2)
        }
    )
    arrivals = Arrivals(rows, draw, batches)
    with patch.object(host_plan, "placed", PLACINGS[placing]):
        host, alone = LocalHost(versions, shards), LocalHost(versions, 1)
        found, expected = Tables(host.plan(1)), Tables(alone.plan(1))
        for batch, tasks in enumerate(arrivals.batches):
            command = Command(batch, batch + 1)
            found.plan, expected.plan = host.plan(batch + 1), alone.plan(batch + 1)
            host = run(host, command, tasks, found)
            expected.take(alone.batch(command, tasks))
        last = host.plan(batches + 1).queries
    assert found.failed.keys() == expected.failed.keys() <= {6}
    # Where a query fails in its first step, it may begin in other shards.
    assert {**found.begun, 6: None} == {**expected.begun, 6: None}
    assert found.late == expected.late == Counter()
    for number, text in texts.items():
        if number not in found.failed:
            assert found.contents(number) == expected.contents(number), text
        since = found.begun.get(number)
        if number in last and since is not None and number != 6:
            by_itself = contents(last[number], arrivals.rows)
            if last[number].result.kind == "latest":
                assert since > END_US or found.contents(number) == by_itself, text
            else:
                assert _since(found.contents(number), since) == _since(by_itself, since), text


def _since(rows: Counter[tuple[Any, ...]], since_us: int) -> Counter[tuple[Any, ...]]:
    return Counter({row: count for row, count in rows.items() if row[-1].timestamp() * 1e6 >= since_us})


@pytest.mark.parametrize("text", [CHANGING[-1], CHANGING[-1].replace("MINUTES]", "MINUTES SLIDE 1 MINUTE]")])
def test_a_query_that_failed_in_one_shard_begins_in_every_shard_without_what_was_there(text: str) -> None:
    """Its state in the shards where it had not failed is of no use: the others have lost theirs."""
    versions = Versions({1: {"q": (1, text)}, 2: {"q": (3, text)}}, failed=[1])
    host = LocalHost(versions, 4)
    syms, tables = [f"s{number}" for number in range(8)], Tables(host.plan(1))

    def batch(number: int, version: int, rows: list[tuple[Any, ...]], bound_s: int) -> None:
        tables.plan = host.plan(version)
        bound = int((EPOCH + timedelta(seconds=bound_s)).timestamp() * 1_000_000)
        came = scanned(TRADE, frame(TRADE, rows), [number + 1] * len(rows), {"f": bound}, sequences=range(len(rows)))
        tables.take(host.batch(Command(number, version), {"trade": [came]}))

    def row(sym: str, n: int, second: int) -> tuple[Any, ...]:
        return sym, 1.0, n, EPOCH + timedelta(seconds=second)

    batch(0, 1, [row(sym, 1, 1) for sym in syms], 70)
    assert tables.contents(1).total() == len(syms)
    batch(1, 1, [row("s0", 0, 71)], 130)
    assert tables.failed.keys() == {1}
    batch(2, 2, [row(sym, 2, 131) for sym in syms[:3]], 190)
    assert tables.contents(3) == Counter((sym, sym, 0.5) for sym in syms[:3])
