"""Rows that a newer one of their key supersedes stay in the task that reads them, and no result differs."""

from collections import Counter
from contextlib import ExitStack
from contextvars import copy_context
from datetime import timedelta
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kit.continuous import BUSES, EPOCH
from kit.hosting import Tables, Versions, frame, result_table, scanned
from kit.local_host import LocalHost

from upstream.core.feedback.lanes import LANE, NEWEST
from upstream.core.rows import frames, newest
from upstream.core.rows.frames import from_frame
from upstream.core.rows.system_column import SYSTEM, TIMESTAMP
from upstream.hosting import host_plan
from upstream.hosting.host_plan import HostPlans
from upstream.hosting.messages import Command
from upstream.hosting.scan import ScanStep, in_order, oldest_arrival, rows_of
from upstream.language import Catalog
from upstream.operators.relations.plan.nodes import Stream
from upstream.operators.runtime.steps import ChainedSteps

VIEWS = {
    "all": (1, "SELECT * FROM LATEST(buses)"),
    "routes": (2, "SELECT route_id, COUNT(*) AS n, SUM(speed) AS s FROM LATEST(buses) GROUP BY route_id"),
    "total": (3, "SELECT COUNT(*) AS n, MAX(speed) AS s FROM LATEST(buses)"),
}
WINDOW = {"window": (4, "SELECT vehicle_id, COUNT(*) AS n FROM buses [RANGE 10 MINUTES] GROUP BY vehicle_id")}
START_US = int(EPOCH.timestamp() * 1_000_000)

ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, "a", "b"]),
        st.sampled_from(["r", None]),
        st.none() | st.integers(0, 4),
        st.integers(0, 3),  # sequence
        st.integers(0, 2),  # arrival
        st.sampled_from(["f", "g"]),
        st.sampled_from([False, False, True]),
    ),
    max_size=14,
    unique_by=lambda row: row[3:6],
)


def table_of(rows, bound=None):
    """Rows as a task reads them, in batches of one row; speeds are all different."""
    parts = [
        scanned(
            BUSES,
            frame(BUSES, [(key, route, speed, None if time is None else EPOCH + timedelta(seconds=time))]),
            [arrival],
            sequences=[sequence],
            deleted=[deleted],
            feed=feed,
        )
        for speed, (key, route, time, sequence, arrival, feed, deleted) in rows
    ]
    bounds = {} if bound is None else dict.fromkeys("fg", START_US + bound * 1_000_000)
    return pa.concat_tables([*parts, scanned(BUSES, frame(BUSES, []), [], bounds)])


def answers(batches, views, *, supersede=True, rows_at_once=500_000, together=500_000):
    """The tables after each batch with the arrivals of what was written, and the number of late rows."""
    host, found = LocalHost(Versions({1: views}), 2), []
    with ExitStack() as stack:
        stack.enter_context(patch.object(frames, "ROWS_AT_ONCE", rows_at_once))
        stack.enter_context(patch.object(newest, "_BRING_TOGETHER", together))
        if not supersede:
            stack.enter_context(patch.object(host_plan, "_takes_newest", return_value=False))
        tables = Tables(host.plan(1))
        assert host.plan(1).readers("buses") == (supersede, not supersede or "window" in views)
        for number, tasks in enumerate(batches):
            left = host.batch(Command(number, 1), {"buses": tasks})
            tables.take(left)
            written = [(each.leaving.query, result_table(each.frame)) for each in left if each.leaving.kind == "rows"]
            systems = {(query, row["first_arrival"], row["arrival"]) for query, rows in written for row in system(rows)}
            found.append(({number: tables.contents(number) for number, _ in views.values()}, systems))
    assert not tables.failed
    return found, tables.late["buses"]


def system(rows):
    return rows.column(SYSTEM).to_pylist()


@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])  # it takes minutes to make an example smaller
@given(rows=ROWS, window=st.booleans(), draw=st.data())
def test_no_table_differs_however_rows_are_divided(rows, window, draw):
    views = {**VIEWS, **(WINDOW if window else {})}
    batches = draw.draw(st.integers(1, 3))
    of = draw.draw(st.lists(st.tuples(st.integers(0, batches - 1), st.integers(0, 2)), min_size=14, max_size=14))
    bounds = sorted(draw.draw(st.lists(st.integers(0, 4), min_size=batches, max_size=batches)))
    numbered = [(each, *of[each[0]]) for each in enumerate(rows)]
    every, divided = [], []
    for number, bound in enumerate(bounds):
        every.append([table_of([row for row, batch, _ in numbered if batch == number], bound)])
        tasks = [[row for row, batch, of_task in numbered if (batch, of_task) == (number, task)] for task in range(3)]
        divided.append([table_of(task, bound) for task in tasks if task or bound])
    cuts = draw.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    expected, late = answers(every, views, supersede=False)
    found, fewer = answers(divided, views, rows_at_once=cuts[0], together=cuts[1])
    assert found == expected
    untimed = sum(row[2] is None for row in rows) * (1 + window)  # of each clock
    assert untimed <= fewer <= late
    if not any(row[6] for row in rows):
        assert fewer == late  # no deleted row could come back


def sent(rows, views, task_rows=500_000):
    """The rows of the one routing to the one shard, in order."""
    step = ScanStep(lambda: Command(0, 1), HostPlans(Versions({1: views}), [0]), "buses", keeps_late=True)
    with patch.object(frames, "ROWS_AT_ONCE", task_rows):
        found = [row for batch in step(iter(table_of(rows).to_batches())) for row in batch.to_pylist()]
    return in_order([from_frame(each["frame"]) for each in found if each["frame"] is not None])


ONE = {"all": VIEWS["all"]}


@pytest.mark.parametrize("task_rows", [1, 2, 500_000])
def test_a_task_sends_the_newest_row_of_each_key_and_all_without_a_time(task_rows):
    rows = [
        ("a", "r", 2, 1, 5, "f", False), ("a", "r", 2, 2, 4, "f", False), ("a", "r", 1, 3, 3, "f", False),
        ("b", "r", 1, 1, 7, "g", False), ("b", "r", 2, 4, 8, "f", True),
        ("b", "r", None, 5, 9, "f", False), ("b", "r", None, 6, 9, "f", False),
    ]  # fmt: skip
    came = sent(list(enumerate(rows)), ONE, task_rows)
    assert rows_of(came, BUSES.schema).get_column("speed").to_list() == [1.0, 4.0, 5.0, 6.0]
    assert oldest_arrival(came) == 3
    assert oldest_arrival(came.slice(1)) == 7


def test_a_window_beside_it_gets_every_row():
    rows = list(enumerate([("a", "r", 1, at, 1, "f", False) for at in range(3)]))
    assert Counter(sent(rows, WINDOW).column("speed").to_pylist()) == Counter([0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "r", 2, 1, 1, "f", False), ("a", "r", 1, 2, 2, "g", False)),
        (("a", "r", 1, 2, 1, "f", False), ("a", "r", 1, 1, 2, "g", False)),
        (("a", "r", 1, 1, 2, "f", False), ("a", "r", 1, 1, 1, "g", False)),
        (("a", "r", 1, 1, 1, "g", False), ("a", "r", 1, 1, 1, "f", False)),
    ],
)
def test_the_newest_is_by_time_then_sequence_then_arrival_then_feed(one, other):
    for rows in ([one, other], [other, one]):
        assert sent(list(enumerate(rows)), ONE).column("speed").to_pylist() == [rows.index(one)]


@pytest.mark.parametrize(
    ("views", "lane", "before", "allowed"),
    [
        (ONE, "both", (), (("vehicle_id",), "timestamp")),
        ({**ONE, **WINDOW}, "newest", (), (("vehicle_id",), "timestamp")),
        ({**ONE, **WINDOW}, "both", (), None),
        (ONE, "every", (), None),
        (ONE, "both", (iter,), None),
    ],
)
def test_a_task_may_read_only_newest_rows_if_all_its_readers_take_them_as_they_are(views, lane, before, allowed):
    step = ScanStep(lambda: Command(0, 1), HostPlans(Versions({1: views}), [0]), "buses")
    seen = []

    def source():
        seen.append(NEWEST.get())
        yield from table_of([]).to_batches()

    def run():
        LANE.set(lane)
        NEWEST.set(None)
        list(ChainedSteps((*before, step))(source()) if before else step(source()))

        seen.append(NEWEST.get())

    copy_context().run(run)
    assert seen == [allowed, None]  # the next task of the process may have other readers


def test_a_key_of_numbers_goes_to_the_same_shard_with_every_batch():
    schema = pa.schema([("id", pa.int64()), ("at", TIMESTAMP)])
    numbers = Stream("numbers", schema, ("id",), "at", updates=True)
    versions = Versions({1: {"all": (1, "SELECT id FROM LATEST(numbers)")}}, catalog=Catalog().with_stream(numbers))
    step = ScanStep(lambda: Command(0, 1), HostPlans(versions, [0, 1]), "numbers")

    def shards(*keys):
        batch = scanned(numbers, frame(numbers, [(key, EPOCH) for key in keys]), [1] * len(keys))
        rows = [row for each in step(iter(batch.to_batches())) for row in each.to_pylist()]
        sent = [(row["slot"], in_order([from_frame(row["frame"])])) for row in rows if row["frame"] is not None]
        return {key: slot for slot, part in sent for key in part.column("id").to_pylist()}

    together = shards(*range(20))
    assert set(together.values()) == {0, 1}
    assert [shards(key)[key] for key in range(20)] == [together[key] for key in range(20)]
