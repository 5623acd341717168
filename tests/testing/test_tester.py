"""What comes out of the steps of a stream, against answers found by hand."""

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import upstream as us
from upstream.conf.errors import CheckpointError, OptionError, QueryError, SchemaError
from upstream.testing import StreamTester

SCHEMA = "k STRING, at TIMESTAMP, v DOUBLE"
EXACT = us.Watermark.ordered().guarded(confirmations=1)
GROUPS = "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 10 MINUTES] GROUP BY k"
JOINED = "SELECT o.id, o.v, c.name FROM LATEST(orders) o LEFT JOIN LATEST(customers) c ON o.customer = c.customer"
SCHEMAS = {
    "orders": "id INT, customer INT, at TIMESTAMP, v INT",
    "customers": "customer INT, since TIMESTAMP, name STRING",
}


def at(minute: float) -> datetime:
    return datetime(2024, 1, 1, 12, tzinfo=timezone.utc) + timedelta(minutes=minute)


def row(key: str, minute: float, value: float | None = 1.0) -> dict[str, Any]:
    return {"k": key, "at": at(minute), "v": value}


def made(steps: Any, watermark: us.Watermark | None = EXACT, **more: Any) -> StreamTester:
    return StreamTester(steps, SCHEMA, key="k", event_time="at", watermark=watermark, **more)


def windows(stream: Any) -> Any:
    return stream.window("10 minutes", "5 minutes", emit="all").agg(n=us.count(), mean=us.avg("v"))


def results(rows: list[dict[str, Any]]) -> list[tuple[str, int, int, float]]:
    """Key, the window's end in minutes, and the aggregates."""
    return sorted((r["k"], round((r["window_end"] - at(0)).total_seconds() / 60), r["n"], r["mean"]) for r in rows)


def test_windows_close_by_the_watermark_and_at_the_end():
    t = made(windows)
    assert t.batch([row("a", 1, 2.0), row("b", 4, 6.0), row("a", 4.5, 4.0)]) == []
    assert results(t.batch([row("a", 7, 9.0)])) == [("a", 5, 2, 3.0), ("b", 5, 1, 6.0)]
    assert t.watermark == at(7)
    assert results(t.batch(punctuation=at(10))) == [("a", 10, 3, 5.0), ("b", 10, 1, 6.0)]
    assert t.watermark == at(10)
    assert results(t.end()) == [("a", 15, 1, 9.0)]
    assert [(r["k"], r["n"]) for r in t.latest()] == [("a", 1), ("b", 1)]
    assert len(t.latest(key=("k", "window_id"))) == 5


def test_a_late_row_is_left_out_and_shown():
    t = made(windows)
    t.batch([row("a", 1), row("a", 11)])
    assert t.late == []
    late = row("a", 2, 7.0)
    t.batch([late, row("a", 6, 3.0)])  # in the window that ends at 15 the second still counts
    assert t.late == [late, row("a", 6, 3.0)]
    assert results(t.end()) == [("a", 15, 2, 2.0), ("a", 20, 1, 1.0)]


def test_the_policy_is_the_jobs():
    bounded = made(windows, us.Watermark.bounded("3 minutes").guarded(confirmations=1))
    assert bounded.batch([row("a", 1), row("a", 7.9)]) == []
    assert bounded.watermark == at(4.9)
    guarded = made(windows, us.Watermark.ordered())  # believes the times of a feed from its fifth row on
    guarded.batch([row("a", minute) for minute in range(4)])
    assert guarded.watermark is None
    guarded.batch([row("a", 4)])
    assert guarded.watermark == at(4)


def test_the_least_of_several_feeds_counts():
    t = made(windows)
    t.batch([row("a", 1)], feed="east")
    t.batch([row("b", 1)], feed="west")
    assert t.batch([row("a", 20)], feed="east") == []
    assert t.watermark == at(1)
    assert results(t.batch(feed="west", punctuation=at(6))) == [("a", 5, 1, 1.0), ("b", 5, 1, 1.0)]


def test_rows_by_themselves():
    def steps(stream: Any) -> Any:
        return stream.where("v > 0 AND k <> 'c'").select("v * 2 AS twice", "v", "upper(k) AS name")

    t = made(steps)
    given = [row("a", 1, 3.0), row("b", 1, -3.0), row("c", 1, 3.0), row("d", 1, None)]
    assert t.batch(given) == [{"k": "a", "at": at(1), "twice": 6.0, "v": 3.0, "name": "A"}]


def test_a_key_that_leaves_is_deleted():
    t = made(lambda stream: stream.where("v > 0", on_leave="delete"))
    t.batch([row("a", 1), row("b", 1)])
    assert t.batch([row("a", 2, 0.0)]) == [{"k": "a", "at": at(2), "v": None, "_upstream": {"deleted": True}}]
    assert t.latest() == [row("b", 1)]
    t.batch([row("a", 1.5)])  # older than the deletion
    assert t.latest() == [row("b", 1)]
    t.batch([row("a", 3)])
    assert t.latest() == [row("a", 3), row("b", 1)]


def test_a_deletion_comes_in():
    t = made(lambda stream: stream.where("v > 0"))
    t.batch([row("a", 1), {**row("a", 2, None), "_upstream": {"deleted": True}}])
    assert t.latest() == []


def test_latest_is_newest_by_time_and_then_by_arrival():
    t = made(lambda stream: stream)
    t.batch([row("a", 5, 1.0), row("a", 3, 2.0)])
    t.batch([row("a", 5, 3.0), row("a", 4, 4.0)])
    assert t.latest() == [row("a", 5, 3.0)]
    without = StreamTester(lambda stream: stream, SCHEMA, key="k")
    without.batch([row("a", 5, 1.0), row("a", 3, 2.0)])
    assert without.latest() == [row("a", 3, 2.0)]


def test_latest_without_a_time_takes_rows_in_the_order_of_arrival():
    """A row that moves to another shard: its result there, and the tombstone of the former one, leave in one batch."""
    t = StreamTester(
        lambda left, right: left.join_latest(right, on="r", how="left", shards=4),
        "k STRING, t BIGINT, r STRING", key="k", event_time="t", time_format="epoch_us",
    )  # fmt: skip
    for time, r in enumerate("3214321"):
        t.batch([{"k": "a", "t": time, "r": r}], into="left")
        assert [each["r"] for each in t.latest()] == [r]


def test_a_map_runs_as_it_is():
    seen: list[list[str]] = []

    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.schema.names)
        return pa.RecordBatch.from_pydict({"twice": [2 * each.as_py() for each in batch.column("v")]})

    t = made(lambda stream: stream.map(double, "twice DOUBLE"))
    assert t.batch([row("a", 1, 4.0)], punctuation=at(2)) == [{"k": "a", "at": at(1), "twice": 8.0}]
    assert seen == [["k", "at", "v"]]


def test_a_queue_lets_its_budget_go():
    t = made(lambda stream: stream.queue(policy="in-place", budget=2, shards=1))
    assert t.batch([row(key, 1) for key in "abcde"]) == [row("a", 1), row("b", 1)]
    assert t.batch([row("d", 2, 5.0)]) == [row("c", 1), row("d", 2, 5.0)]  # in the place of the row it supersedes
    assert t.table.column("_upstream").combine_chunks().field("covered").to_pylist() == [1, 1, 1, 2]
    assert t.end() == [row("e", 1)]


def test_heavier_keys_of_a_queue_go_first():
    t = made(lambda stream: stream.queue(policy="in-place", budget=1, shards=1, weight="IF(k = 'd', v * 50, v)"))
    assert t.batch([row(key, 1) for key in "abcd"]) == [row("a", 1)]  # none has waited: there is nothing to be weighed
    assert t.batch() == [row("d", 1)]


def test_a_queue_keeps_the_access_interval_by_the_clock():
    steps = lambda stream: stream.queue(policy="fifo", budget=None, shards=1, access_interval="v")  # noqa: E731
    t = made(steps)
    now = datetime(2030, 1, 1, tzinfo=timezone.utc)
    assert t.batch([row("a", 1, 60.0)], at=now) == [row("a", 1, 60.0)]
    assert t.batch([row("a", 2, 60.0)], at=now + timedelta(seconds=59)) == []
    assert t.batch(at=now + timedelta(seconds=61)) == [row("a", 2, 60.0)]


def test_rows_are_stamped_by_the_clock():
    steps = lambda stream: stream.window("1 minute").agg(n=us.aggregates.count())  # noqa: E731
    t = StreamTester(steps, "k STRING", key="k", event_time="came", watermark=us.Watermark.arrival())
    assert t.batch([{"k": "a"}], at=at(0)) == []
    assert [(r["window_end"], r["n"]) for r in t.batch(at=at(1))] == [(at(1), 1)]


def test_union_of_two_inputs():
    t = made(lambda left, right: left.union(right))
    assert t.batch([row("a", 1, 1.0)], into="left") == [row("a", 1, 1.0)]
    assert t.batch([row("a", 1, 2.0), row("a", 2, 2.0)], into="right") == [row("a", 2, 2.0)]


def test_merge_gives_the_order_of_time_whatever_came_first():
    t = made(lambda left, right: left.merge(right.where("v > 0"), shards=1))
    assert t.batch([row("a", 1), row("b", 4)], into="left") == []
    found = t.batch([row("c", 2), row("d", 3, 0.0), row("e", 5)], into="right")
    assert found == [row("a", 1), row("c", 2), row("b", 4)]
    assert t.end() == [row("e", 5)]


def test_inputs_of_other_schemas():
    def steps(plain: Any, nested: Any) -> Any:
        return plain.union(nested.select("data.v AS v"))

    schemas = {"plain": SCHEMA, "nested": "k STRING, at TIMESTAMP, data STRUCT<v: DOUBLE>"}
    t = StreamTester(steps, schemas, key="k", event_time="at", watermark=EXACT)
    assert t.batch([{"k": "a", "at": at(1), "data": {"v": 2.0}}], into="nested") == [row("a", 1, 2.0)]


def test_ordered_and_distinct():
    ordered = made(lambda stream: stream.ordered(shards=1, flush="slow", flush_rows=1))
    assert ordered.batch([row("a", 2), row("b", 1), row("c", 3)]) == [row("b", 1)]
    assert ordered.batch() == [row("a", 2)]
    assert ordered.batch([row("d", 1)]) == [row("c", 3)]
    assert ordered.late == [row("d", 1)]
    distinct = made(lambda stream: stream.distinct())
    found = distinct.batch([row("a", 1, 1.0), row("a", 1, 2.0), row("a", 2, 2.0)])
    assert found == [row("a", 1, 1.0), row("a", 2, 2.0)]
    assert distinct.batch([row("a", 2, 3.0)]) == []


def test_the_budget_of_a_queue_may_be_the_duration_of_a_batch():
    found = []

    def steps(stream):
        found.extend(stream.queue(budget=budget).plan.options for budget in ("2 seconds", "auto", 7))
        return stream

    made(steps)
    assert [(each["auto"], each.get("duration")) for each in found] == [
        ("true", "2.0"),
        ("true", None),
        ("false", None),
    ]


def test_a_notebook_shows_the_steps():
    shown = []

    def steps(stream):
        made = stream.where("v < 5")
        shown.extend([made._repr_html_(), made.explain()._repr_html_()])
        return made

    made(steps)
    assert shown[0].startswith("<svg")
    assert "where v &lt; 5" in shown[0]
    assert shown[1].startswith("<pre>where v &lt; 5")


def test_rows_that_nobody_can_use_are_shown():
    t = made(windows)
    t.batch([{"k": None, "at": at(1), "v": 1.0}, {"k": "a", "v": 1.0}])
    assert [r["reason"].split()[0] for r in t.malformed] == ["'k'", "the"]


def test_a_batch_that_fails_changes_nothing():
    t = made(lambda stream: stream.select("CAST(k AS INT) AS number").window("5 minutes").agg(n=us.sum("number")))
    t.batch([row("1", 1)])
    with pytest.raises(us.errors.UpstreamError, match="cannot be computed"):
        t.batch([row("2", 2), row("x", 7)])
    assert [(r["k"], r["n"]) for r in t.end()] == [("1", 1)]


def test_a_division_by_zero_is_an_error_as_on_spark():
    t = made(lambda stream: stream.select("1 / (v - 1) AS share"))
    assert [r["share"] for r in t.batch([row("a", 1, 3.0)])] == [0.5]
    with pytest.raises(us.errors.UpstreamError, match=r"'share' cannot be computed.*nullif"):
        t.batch([row("a", 2, 1.0)])


def test_tables_and_other_times():
    table = pa.table({"k": ["a"], "at": pa.array([at(1)], pa.timestamp("us", "UTC")), "v": [1.0]})
    same = made(lambda stream: stream)
    assert same.batch(table) == [row("a", 1)]
    assert same.batch([{"k": "b", "at": datetime(2024, 1, 1, 12, 1), "v": 1.0}]) == [row("b", 1)]
    with pytest.raises(SchemaError, match="fit the schema"):
        same.batch([{"k": "a", "at": at(1), "v": "much"}])
    numbers = StreamTester(
        lambda s: s.window("5 seconds").agg(n=us.aggregates.count()),
        "k INT, ms BIGINT", key="k", event_time="ms", time_format="epoch_ms", watermark=EXACT,
    )  # fmt: skip
    assert numbers.batch([{"k": 1, "ms": 4_999}]) == []
    assert numbers.watermark == 4_999
    assert [r["n"] for r in numbers.batch(punctuation=5_000)] == [1]


JOBS: dict[str, Any] = {
    "windows": lambda s: (
        s.where("v > 1")
        .window("4 minutes", "2 minutes", shards=2, emit=us.Emission("all", early=True))
        .agg(n=us.count())
    ),
    "windows over windows": lambda s: (
        s.window("2 minutes", shards=2, emit="all")
        .agg(n=us.count())
        .window("6 minutes", shards=2, emit="all")
        .agg(m=us.count())
    ),
    "windows that keep rows": lambda s: s.window(us.Windower("3 minutes", method="buffering"), shards=1).agg(
        n=us.count()
    ),
    "queue": lambda s: s.queue(policy="linecutting", budget=3, shards=2, cost="1 ms"),
    "ordered": lambda s: s.ordered(shards=2, flush="slow", flush_rows=2),
    "distinct, deletions": lambda s: s.where("v > 2", on_leave="delete").distinct(shards=2),
}

rows = st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(0, 9))
batches = st.lists(
    st.tuples(
        st.lists(rows, max_size=6), st.sampled_from(["east", "west"]), st.none() | st.integers(0, 20), st.booleans()
    ),
    max_size=6,
)


def run(job: str, given_batches: Any, *, restarts: bool) -> Any:
    watermark = us.Watermark.bounded("3 minutes").guarded(confirmations=2)
    t = StreamTester(JOBS[job], "k STRING, at TIMESTAMP, v INT", key="k", event_time="at", watermark=watermark)
    found: list[Any] = []
    for given_rows, feed, promise, restarted in given_batches:
        if restarts and restarted:
            t.restart()
        dicts = [{"k": key, "at": at(minute), "v": value} for key, minute, value in given_rows]
        found.append(t.batch(dicts, feed=feed, punctuation=None if promise is None else at(promise)))
        found.append(t.watermark)
    return found, t.end(), t.late, t.latest()


@pytest.mark.parametrize("job", JOBS)
@given(batches)
@settings(max_examples=8)
def test_restarts_change_nothing(job, given_batches):
    assert run(job, given_batches, restarts=True) == run(job, given_batches, restarts=False)


def test_a_changed_program_is_held_against_the_checkpoint():
    t = StreamTester(
        lambda s: s.window("5 minutes").agg(n=us.count()), "k STRING, at TIMESTAMP, v INT", key="k", event_time="at",
        watermark=us.Watermark.ordered().guarded(confirmations=1),
    )  # fmt: skip
    t.batch([{"k": "a", "at": at(1), "v": 1}])
    with pytest.raises(CheckpointError, match="has window"):
        t.restart(lambda s: s.window("6 minutes").agg(n=us.count()))
    with pytest.raises(CheckpointError, match="upstream-reorder/0"):
        t.restart(lambda s: s.distinct().window("5 minutes").agg(n=us.count()))
    with pytest.raises(OptionError, match="inputs called s"):
        t.restart(lambda other: other)
    t.restart(lambda s: s.where("v < 5").window("5 minutes").agg(n=us.count()))  # a filter has no state
    t.batch([{"k": "a", "at": at(2), "v": 9}])
    assert [each["n"] for each in t.end()] == [1]


def asked(text: str, **more: Any) -> StreamTester:
    return StreamTester(text, {"s": SCHEMA}, **{"key": "k", "event_time": "at", **more})


def answer(text: str, **rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    database = duckdb.connect()
    for name, each in rows.items():
        database.register(name, pa.Table.from_pylist(each))
    return database.sql(text).fetchall()


def test_windowed_groups_are_those_of_duckdb_at_each_watermark():
    draw, t, came = random.Random(7), asked(GROUPS), list[dict[str, Any]]()
    for low in range(5, 60, 5):
        rows = [row(draw.choice("abc"), low - 5 + 8 * draw.random(), draw.randrange(9)) for _ in "123"[low % 3 :]]
        t.batch(rows, punctuation=at(low))
        came += rows
        since, until = (f"TIMESTAMPTZ '{each}'" for each in (at(low - 10), at(low)))
        text = f'SELECT k, count(*), sum(v) FROM came WHERE "at" >= {since} AND "at" < {until} GROUP BY k ORDER BY k'
        assert [tuple(each.values()) for each in t.latest()] == (answer(text, came=came) if came else [])
        t.restart()
    assert not t.late


def test_joined_newest_rows_with_deletions_are_those_of_duckdb():
    draw = random.Random(3)
    keys, times = {"orders": "id", "customers": "customer"}, {"orders": "at", "customers": "since"}
    t = StreamTester(JOINED, SCHEMAS, key=keys, event_time=times)
    came: dict[str, list[dict[str, Any]]] = {"orders": [], "customers": []}
    for minute in draw.sample(range(200), 80):  # in any order: the newest time counts
        stream, gone = draw.choice(list(came)), draw.random() < 0.2
        new = {"orders": {"id": draw.randrange(5), "customer": draw.randrange(3), "at": at(minute), "v": minute}}
        new["customers"] = {"customer": draw.randrange(3), "since": at(minute), "name": f"n{minute}"}
        t.batch([new[stream] | ({"_upstream": {"deleted": True}} if gone else {})], into=stream)
        came[stream].append(new[stream] | {"gone": gone})
    newest = '(FROM (FROM {0} QUALIFY row_number() OVER (PARTITION BY {1} ORDER BY "{2}" DESC) = 1) WHERE NOT gone)'
    orders, customers = (newest.format(name, keys[name], times[name]) for name in came)
    wanted = f"SELECT id, v, name FROM {orders} LEFT JOIN {customers} USING (customer) ORDER BY id"
    assert [tuple(each.values()) for each in t.latest()] == answer(wanted, **came)


def test_a_late_row_is_shown_and_counts_within_the_lateness():
    for lateness, late, n in ((None, [row("a", 2)], 1), ("5 minutes", [], 2)):
        t = asked("SELECT k, COUNT(*) AS n FROM s [RANGE 1 HOUR] GROUP BY k", lateness=lateness)
        assert t.batch([row("a", 1)], punctuation=at(5)) == [{"k": "a", "n": 1}]
        t.batch([row("a", 2)])
        assert (t.late, t.latest()) == (late, [{"k": "a", "n": n}])


def test_late_rows_are_deletions_or_come_after_forgotten_ones():
    gone = {"_upstream": {"deleted": True}}
    t = asked("SELECT k, v FROM s [RANGE 1 HOUR]")
    t.batch(punctuation=at(5))
    t.batch([row("a", 2) | gone])
    assert t.late == [row("a", 2) | gone]
    t = asked("SELECT k, v FROM LATEST(s)")
    t.batch([row("a", 2) | gone], punctuation=at(5))
    assert t.batch([row("a", 1)]) == []
    assert t.late == [row("a", 1)]


def test_the_clock_advances_a_silent_stream_that_a_query_waits_for():
    t = asked(GROUPS, watermark={"s": EXACT}, idle="ets", ets_delay="2 seconds")
    assert t.batch([row("a", 1)], at=at(1)) == []
    assert t.batch(at=at(2)) == [{"k": "a", "n": 1, "total": 1}]


def test_each_batch_emits_all_periods_of_a_stream_of_results():
    t = asked("SELECT k FROM s [RANGE 10 MINUTES] EMIT PERIODIC INTERVAL '1' SECOND")
    assert len(t.batch([row("a", 1)], punctuation=at(3))) == 120
    assert (len(t.end()), len(t.latest()), t.latest()[0]) == (480, 600, {"k": "a", "time": at(1)})


def test_a_query_that_fails_leaves_the_state_as_it_was():
    t = asked("SELECT k, 10 / v AS tenth FROM LATEST(s)")
    with pytest.raises(QueryError, match="has no value where v = 0"):
        t.batch([row("a", 1), row("b", 2, 0)])
    assert t.batch([row("a", 1)]) == [{"k": "a", "tenth": 10.0}]


@pytest.mark.parametrize(
    ("message", "asks"),
    [
        (r"no stream, relation or view 'trams'\. What to do: there are: s", lambda: asked("SELECT k FROM trams")),
        (r"a schema without a name\. Expected: a mapping", lambda: StreamTester(GROUPS, SCHEMA, key="k")),
        ("key= has no 's'", lambda: asked(GROUPS, key={"t": "k"})),
        ('do not fit the schema: .*"v"', lambda: asked(GROUPS).batch(pa.table({"k": ["a"], "at": [at(1)]}))),
        ("with another query", lambda: asked(GROUPS).restart("SELECT k FROM s")),
        ("cannot be corrected", lambda: asked("SELECT k FROM LATEST(s)", lateness="1 minute")),
        ("a query with tables", lambda: asked(GROUPS, tables={"t": pa.table({"k": ["a"]})})),
        ("steps with lateness", lambda: made(windows, lateness="1 minute")),
    ],
)
def test_a_query_that_does_not_fit_is_refused(message, asks):
    with pytest.raises(us.errors.UpstreamError, match=message):
        asks()
