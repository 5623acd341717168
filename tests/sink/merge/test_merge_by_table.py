"""Any arrival order, any split into batches and tasks: the same table as a plain computation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.sink import Sink
from kit.splits import split

from upstream.sink.merge import incoming

ENGINES = ("rewrite", "vectors")

KEYS = st.sampled_from(["a", "b", "c", "d", "", "é", "a longer key than four bytes"])
# Keys and times, in the order in which they arrive at the feed.
ARRIVALS = st.lists(st.tuples(KEYS, st.integers(-3, 3)), max_size=40)
COLUMNS = pa.schema([("k", pa.string()), ("t", pa.int64()), ("payload", pa.list_(pa.int64()))])

Row = tuple[str, int, int]
"""Key, time, and the row's number in its feed, which is its payload too."""


def as_batch(sink: Sink, rows: list[Row]) -> pa.RecordBatch:
    numbers = [number for _, _, number in rows]
    arrival_us = [1_000 + number for number in numbers]
    return sink.rows([(key, time, [number]) for key, time, number in rows], seq=numbers, arrival_us=arrival_us)


def batches_of_tasks(data: st.DataObject, sink: Sink, rows: list[Row]) -> list[list[list[pa.RecordBatch]]]:
    """Any split of the rows into batches, of a batch into tasks, and of a task into what Spark hands it at a time."""
    return [
        [
            [as_batch(sink, part) for part in split(data, task)]
            for task in split(data, data.draw(st.permutations(batch)))
        ]
        for batch in split(data, rows)
    ]


@pytest.fixture
def new_sink(make_sink: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Sink]:
    """Makes sinks on tables of their own: an example of Hypothesis does not see those of the others."""

    def make(**options: str) -> Sink:
        sink = make_sink(COLUMNS, **options)
        return dataclasses.replace(sink, folder=tmp_path_factory.mktemp("table"))

    return make


each_with_a_sink = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@each_with_a_sink
@given(data=st.data(), arrivals=ARRIVALS)
def test_the_row_with_the_greatest_time_wins_in_whatever_order_rows_come(
    new_sink: Callable[..., Sink], data: st.DataObject, arrivals: list[tuple[str, int]]
) -> None:
    rows = [(key, time, number) for number, (key, time) in enumerate(arrivals)]
    sink = new_sink(time="t")

    for batch_id, tasks in enumerate(batches_of_tasks(data, sink, data.draw(st.permutations(rows)))):
        sink.batch(batch_id, *tasks)

    # Of one time the row that came later at the feed.
    winners = {key: (time, [number]) for key, time, number in sorted(rows, key=lambda row: row[1:])}
    assert (sink.latest() if rows else {}) == winners


@each_with_a_sink
@given(data=st.data(), arrivals=ARRIVALS)
def test_without_a_time_the_row_that_came_last_wins(
    new_sink: Callable[..., Sink], data: st.DataObject, arrivals: list[tuple[str, int]]
) -> None:
    rows = [(key, time, number) for number, (key, time) in enumerate(arrivals)]
    sink = new_sink(time="")

    for batch_id, tasks in enumerate(batches_of_tasks(data, sink, rows)):
        sink.batch(batch_id, *tasks)

    last = {key: (time, [number]) for key, time, number in rows}
    assert (sink.latest() if rows else {}) == last


@each_with_a_sink
@given(data=st.data(), arrivals=ARRIVALS)
def test_each_update_is_counted_once_as_delivered_or_superseded(
    new_sink: Callable[..., Sink], data: st.DataObject, arrivals: list[tuple[str, int]]
) -> None:
    rows = [(key, time, number) for number, (key, time) in enumerate(arrivals)]
    sink = new_sink(time=data.draw(st.sampled_from(["t", ""])))

    batches = batches_of_tasks(data, sink, rows)
    done: list[tuple[Any, int]] = []
    for batch_id, tasks in enumerate(batches):
        summary = sink.batch(batch_id, *tasks)
        if summary is not None:  # a batch without rows commits nothing, and the first one makes no table
            done.append((summary, sink.table().num_rows))

    assert sum(summary.updates for summary, _ in done) == len(rows)
    assert all(summary.updates == summary.delivered + summary.superseded for summary, _ in done)
    assert all(summary.keys == keys for summary, keys in done)


def test_many_rows_are_coalesced_on_the_way(make_sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    keys, times = rng.integers(0, 50, 3000).tolist(), rng.integers(0, 1000, 3000).tolist()
    rows = [(key, time, str(seq)) for seq, (key, time) in enumerate(zip(keys, times, strict=True))]
    results = []
    for limit in (2_000_000, 100):
        monkeypatch.setattr(incoming, "_COALESCE_AT", limit)
        sink = make_sink(query_id=f"limit-{limit}")
        sink.folder /= str(limit)
        sink.__post_init__()
        first_us = [1_000 + 7 * seq for seq in range(3000)]
        parts = [
            sink.rows(rows[i : i + 60], seq=i, first_arrival_us=np.array(first_us[i : i + 60]))
            for i in range(0, 3000, 60)
        ]
        summary = sink.batch(0, parts)
        results.append((sink.latest(), summary.updates, summary.delivered, summary.staleness, summary.rows))
    assert results[0] == results[1]
    assert results[0][1:3] == (3000, 50)
