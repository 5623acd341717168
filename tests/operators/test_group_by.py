"""Groups of newest rows without Spark."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.testing import StreamTester


def stream_tester(steps):
    schema = "k STRING, t BIGINT, r STRING, v BIGINT"
    return StreamTester(steps, schema, key="k", event_time="t", time_format="epoch_us")


@pytest.mark.parametrize(
    ("steps", "error", "words"),
    [
        (lambda stream: stream.group_by("r").agg(), OptionError, "nothing to aggregate"),
        (lambda stream: stream.group_by("r").agg(n="count"), OptionError, "is not an aggregate"),
        (lambda stream: stream.group_by(), OptionError, "at least one column"),
        (lambda stream: stream.group_by("line"), SchemaError, "line"),
        (lambda stream: stream.group_by("r").agg(r=us.count()), SchemaError, "column of that name"),
        (lambda stream: stream.group_by("r").agg(n=us.count()).window("1 s"), OptionError, "without an event time"),
    ],
)
def test_what_makes_no_sense_is_refused(steps, error, words):
    with pytest.raises(error, match=words):
        stream_tester(steps)


SCHEMA = "k STRING, t BIGINT, r STRING, v BIGINT"
Row = dict[str, Any]

ROW = st.fixed_dictionaries(
    {"k": st.sampled_from("abc"), "t": st.integers(0, 30), "r": st.sampled_from(["x", "y", None]),
     "v": st.integers(-3, 5)}
)  # fmt: skip
BATCHES = st.lists(
    st.tuples(st.lists(ROW, max_size=6), st.none() | st.integers(0, 34), st.booleans()), min_size=1, max_size=5
)


def started(steps: Any, **more: Any) -> StreamTester:
    return StreamTester(steps, SCHEMA, key="k", event_time="t", time_format="epoch_s", **more)


def inner(stream: Any, *, early: bool = True, lateness: str = "3 seconds") -> Any:
    return stream.window("4 seconds", shards=2, emit=us.Emission("all", early=early), lateness=lateness).agg(
        n=us.count(), v=us.max("v")
    )


def relation(found: StreamTester) -> dict[tuple[str, int], Row]:
    """The newest result of each inner window."""
    return {(row["k"], row["window_id"]): row for row in found.latest(key=("k", "window_id"), event_time="window_time")}


def in_pairs(found: dict[tuple[str, int], Row]) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Windows of 8 seconds, every 4, over windows of 4 seconds."""
    windows: dict[tuple[str, int], list[Row]] = {}
    for (key, wid), row in found.items():
        for outer in (wid, wid + 1):
            windows.setdefault((key, outer), []).append(row)
    return {
        name: (len(rows), sum(row["n"] for row in rows), max(row["v"] for row in rows))
        for name, rows in windows.items()
    }


def results(found: StreamTester) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {(row["k"], row["window_id"]): (row["rows"], row["n"], row["v"]) for row in found.latest()}


@given(BATCHES, st.booleans(), st.booleans(), st.booleans())
def test_windows_over_windows_that_are_given_again(batches, early, revised, late):
    lateness = "3 seconds" if late else "0 seconds"

    def steps(stream: Any) -> Any:
        windows = inner(stream, early=revised or not late, lateness=lateness)
        return windows.window("8 seconds", "4 seconds", shards=3, emit=us.Emission("all", early=early)).agg(
            rows=us.count(), n=us.sum("n"), v=us.max("v")
        )

    outer, alone = started(steps), started(lambda stream: inner(stream, early=revised or not late, lateness=lateness))
    finals: dict[tuple[str, int], tuple[int, int, int]] = {}
    for rows, bound, restart in [*batches, ([], None, False)]:
        given_rows = outer.end() if (rows, bound) == ([], None) else outer.batch(rows, punctuation=bound)
        alone.end() if (rows, bound) == ([], None) else alone.batch(rows, punctuation=bound)
        for row in given_rows:
            name = row["k"], row["window_id"]
            assert name not in finals
            if row["final"]:
                finals[name] = row["rows"], row["n"], row["v"]
        expected = in_pairs(relation(alone))
        assert results(outer) == (expected if early else finals)
        assert finals.items() <= expected.items()
        assert outer.late == alone.late
        if restart:
            outer.restart()
        if (rows, bound) == ([], None):
            break
    if (rows, bound) == ([], None):
        assert finals == expected


def newest_in_windows(rows: list[tuple[Row, int | None]]) -> dict[tuple[str, int], tuple[int, int]]:
    """Windows of 10 seconds, every 5, of the rows that were not late, and pass."""
    newest: dict[tuple[str, int], Row] = {}
    for row, bound in rows:
        first = row["t"] // 5
        for window in (first, first + 1):
            if bound is not None and (window + 1) * 5 <= bound:
                continue
            name = row["k"], window
            if name not in newest or row["t"] >= newest[name]["t"]:
                newest[name] = row
    groups: dict[tuple[str, int], list[int]] = {}
    for (_, window), row in newest.items():
        if row["v"] >= 0 and row["r"] is not None:
            groups.setdefault((row["r"], window), []).append(row["v"])
    return {name: (len(values), max(values)) for name, values in groups.items()}


@given(BATCHES)
def test_vehicles_of_each_route_in_each_window(batches):
    def steps(stream: Any) -> Any:
        passing = stream.where("v >= 0", on_leave="delete").select("r", "v")
        windows = passing.group_by("r", shards=2).window("10 seconds", "5 seconds", emit=us.Emission(early=True))
        return windows.agg(n=us.count(), most=us.max("v"))

    found, rows, bound = started(steps), list[tuple[Row, int | None]](), None
    for more, promised, restart in batches:
        rows += [(row, bound) for row in more]
        found.batch(more, punctuation=promised)
        bound = promised if bound is None or (promised is not None and promised > bound) else bound
        if restart:
            found.restart()
        latest = {(row["r"], row["window_id"]): row for row in found.latest()}
        assert {name: (row["n"], row["most"]) for name, row in latest.items()} == newest_in_windows(rows)
        for (_, window), row in latest.items():
            assert row["final"] == (bound is not None and (window + 1) * 5 <= bound)


def by_route(**options: Any) -> Any:
    given = {"duration": "5 seconds", **options}
    return lambda stream: stream.group_by("r").window(given.pop("duration"), **given).agg(n=us.count())


@pytest.mark.parametrize(
    ("steps", "kind", "match"),
    [
        (by_route(duration="3 rows"), OptionError, "by time"),
        (by_route(duration="all", slide="1 second"), OptionError, "by time"),
        (by_route(newest="all"), OptionError, "'window' or 'table'"),
        (by_route(emit="latest"), OptionError, "emit='latest'"),
        (by_route(emit=us.Emission(flush="lazy")), OptionError, "flush='lazy'"),
        (by_route(event_time="v"), OptionError, "newest='table'"),
        (by_route(newest="table", event_time="w"), SchemaError, "is not a column of the stream"),
        (by_route(newest="table", lateness="1 second"), OptionError, "never becomes final"),
        (by_route(duration="1 day", slide="1 us"), OptionError, "at most"),
        (lambda stream: stream.group_by("r").window("5 seconds").agg(r=us.count()), SchemaError,
         "column of that name"),
        (lambda stream: stream.queue().group_by("r").window("5 seconds"), SchemaError, "once"),
        (lambda stream: stream.group_by("r").agg(n=us.count()).group_by("n").window("5 s"), SchemaError, "in place"),
        (lambda stream: inner(stream).where("n > 1").window("8 seconds", emit="all"), SchemaError, "several times"),
        (lambda stream: inner(stream).select("n").window("8 seconds", emit="all"), SchemaError, "several times"),
        (lambda stream: inner(stream).window("8 seconds"), SchemaError, "several times"),
        (lambda stream: inner(stream).window("8 seconds", tombstones="drop", emit="all"), OptionError, "tombstones"),
        (lambda stream: by_route(newest="table")(stream).group_by("r").window("8 seconds"), SchemaError, "re-emits"),
    ],
)  # fmt: skip
def test_windows_that_make_no_sense_are_refused(steps, kind, match):
    with pytest.raises(kind, match=match):
        started(steps)
