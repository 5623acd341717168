"""Arguments of joins that need no Spark."""

import datetime as dt
from collections import Counter
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import upstream as us
from upstream.conf.errors import OptionError, SchemaError, StateLimitError
from upstream.testing import StreamTester


def stream_tester(steps):
    return StreamTester(steps, "k STRING, t BIGINT, v BIGINT", key="k", event_time="t", time_format="epoch_us")


NEAR = us.Interval(before=2, after=3)


@pytest.mark.parametrize("lateness", ["0 seconds", "1 minute"], ids=["final", "corrected"])
def test_results_of_windows_are_joined(lateness):
    def counts(left, right):
        one, two = (
            each.window("10 seconds", shards=2, emit="all", lateness=lateness).agg(n=us.count())
            for each in (left, right)
        )
        return one.join(two, on="k", within=us.Interval(), how="left", shards=2)

    tester = StreamTester(counts, "k STRING, t TIMESTAMP", key="k", event_time="t")
    at = [dt.datetime(2024, 1, 1, 0, 0, second, tzinfo=dt.timezone.utc) for second in range(30)]
    tester.batch([{"k": "a", "t": at[each]} for each in (1, 2, 12)] + [{"k": "b", "t": at[3]}], into="left")
    tester.batch([{"k": "a", "t": at[9]}], into="right")
    first, corrected = int(at[0].timestamp()) // 10 % 2, lateness != "0 seconds"
    if corrected:
        for side in ("left", "right"):
            tester.batch([], into=side, punctuation=at[25])
        tester.restart()
        assert len(tester.latest()) == 3
        tester.batch([{"k": "b", "t": at[4]}], into="left")
        tester.batch([{"k": "a", "t": at[13]}], into="right")
    found = tester.end()
    rows = tester.latest() if corrected else found
    assert sorted((row["k"], row["window_id"] % 2, row["n"], row["n_right"] or 0) for row in rows) == sorted(
        [("a", first, 2, 1), ("a", 1 - first, 1, int(corrected)), ("b", first, 1 + corrected, 0)]
    )


def bounded(limit):
    near = us.Interval(before=99, after=99)
    return lambda left, right: left.join(right, on="k", within=near, how="left", shards=us.Shards(1, state_limit=limit))


def test_a_limit_of_the_state_may_change():
    tester = stream_tester(bounded(4000))
    rows = [{"k": "a", "t": at, "v": at} for at in range(400)]
    with pytest.raises(StateLimitError, match="state_limit=4000"):
        tester.batch(rows, into="left")
    tester.restart(bounded("1 MB"))
    tester.batch(rows, into="left")
    tester.batch([{"k": "b", "t": 3, "v": 0}], into="right")
    assert len(tester.end()) == 400


ADAPTIVE = us.OrderedRelease("adaptive", cost=1e7)


@pytest.mark.parametrize("emit", [us.OrderedRelease("sync"), "ordered", ADAPTIVE], ids=["sync", "ordered", "adaptive"])
def test_results_in_the_order_of_time_run_without_spark(emit):
    tester = stream_tester(lambda left, right: left.join(right, on="k", within=2, emit=emit, shards=2))
    rows = [{"k": "a", "t": 10, "v": 1}, {"k": "a", "t": 12, "v": 2}]
    assert tester.batch(rows, into="left", punctuation=12) == []
    assert tester.batch([{"k": "a", "t": 12, "v": 3}], into="right", punctuation=10) == []
    found = tester.batch([{"k": "a", "t": 11, "v": 4}], into="right", punctuation=12)
    assert [row["join_time"] for row in found] == [11, 12, 12, 12]
    tester.restart()
    assert tester.batch([{"k": "a", "t": 10, "v": 5}], into="right") != []  # with the left's row at 12, at the bound
    assert [(row["join_time"], row["v"], row["v_right"]) for row in tester.late] == [(10, 1, 5)]


@pytest.mark.parametrize(("how", "found"), [("semi", [1]), ("anti", [2, 3])])
def test_rows_of_the_left_with_or_without_a_partner_stay_as_they_are(how, found):
    tester = stream_tester(lambda left, right: left.join(right, on="k", how=how, shards=2, within=us.Windower(7)))
    rows = [{"k": "a", "t": 6, "v": 1}, {"k": "a", "t": 7, "v": 2}, {"k": "b", "t": 6, "v": 3}]
    given = tester.batch(rows, into="left") + tester.batch([{"k": "a", "t": 0, "v": 9}], into="right") + tester.end()
    assert sorted(given, key=lambda row: row["v"]) == [row for row in rows if row["v"] in found]


def test_joins_in_a_row_with_a_condition_then_windows():
    def steps(one, two, three):
        first = one.join(two, on="k", within=NEAR, shards=2, condition="l.v <= r.v")
        last = first.join(three, on="k", within=NEAR, suffix="_third", shards=3).where("v_third > 5")
        return last.window("10 us", shards=2, emit="all").agg(n=us.count(), last=us.max("join_time_left"))

    tester = stream_tester(steps)
    tester.batch([{"k": "a", "t": 1, "v": 1}, {"k": "a", "t": 2, "v": 9}], into="one")
    tester.batch([{"k": "a", "t": 3, "v": 2}, {"k": "a", "t": 4, "v": 3}], into="two")
    tester.batch([{"k": "a", "t": 5, "v": 6}, {"k": "a", "t": 6, "v": 5}], into="three")
    assert [(row["k"], row["window_id"], row["n"], row["last"]) for row in tester.end()] == [("a", 0, 2, 4)]


@pytest.mark.parametrize(
    ("problem", "match"),
    [
        ({"within": None}, "without a bound in time"),
        ({"within": us.Windower("5 s", zone="UTC")}, "a duration alone"),
        ({"within": us.Windower("0 s")}, "at least one unit"),
        ({"how": "outer"}, "inner, left, right, full, semi, anti"),
        ({"how": "semi", "emit": "latest"}, "emit='latest'"),
        ({"emit": "eager"}, "emit='eager'.*'ordered'"),
        ({"emit": us.Emission(flush="lazy")}, "flush='lazy'"),
        ({"condition": "v > 3"}, "ambiguous"),
        ({"shards": 0}, "shards=0"),
        ({"on": []}, r"on=\[\]"),
        ({"on": {"k": "route"}}, "has not"),
        ({"on": {"k": "v"}}, "string and v"),
    ],
)
def test_arguments_that_make_no_sense(problem, match):
    given = {"on": "k", "within": NEAR, **problem}
    with pytest.raises((OptionError, SchemaError), match=match):
        stream_tester(lambda left, right: left.join(right, **given))


@pytest.mark.parametrize(
    ("steps", "match"),
    [
        (lambda one, two: one.join(two.queue(), on="k", within=NEAR), "miss pairs"),
        (lambda one, two: one.join(two, on="k", within=NEAR).join(two, on="k", within=NEAR), "'t_right'"),
        (lambda one, two: one.join(two, on="k", within=us.Windower(5), emit="latest").window("1 s"), "newest pair"),
        (lambda one, two: one.join_as_of(two, on="k", how="full"), "inner, left"),
        (lambda one, two: one.join_as_of(two, on="k", tolerance=-1), "not negative"),
        (lambda one, two: one.join_as_of(two, on="k", tolerance="soon"), "tolerance='soon'"),
    ],
)
def test_streams_that_do_not_meet(steps, match):
    with pytest.raises((OptionError, SchemaError), match=match):
        stream_tester(steps)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "without an event time"),
        ({"event_time": "t", "time_format": "epoch_us", "watermark": us.Watermark.none()}, "without a low-watermark"),
    ],
)
def test_streams_without_a_time_or_a_promise_do_not_meet(given, match):
    for join in (lambda one, two: one.join(two, on="k", within=NEAR), lambda one, two: one.join_as_of(two, on="k")):
        with pytest.raises(OptionError, match=match):
            StreamTester(join, "k STRING, t BIGINT", key="k", **given)


SCHEMA = "k STRING, t BIGINT, r STRING, v BIGINT"


def newest_tester(steps: Any) -> StreamTester:
    return StreamTester(steps, SCHEMA, key="k", event_time="t", time_format="epoch_us")


def rows(*given_rows: tuple[str, int, str | None, int]) -> list[dict[str, Any]]:
    return [dict(zip("ktrv", row, strict=True)) for row in given_rows]


def test_outer_results_pass_a_queue_a_filter_and_a_second_join():
    def steps(left, right, more):
        pairs = left.join_latest(right, on="r", how="full", shards=2).queue(policy="in-place", budget=None)
        kept = pairs.where("coalesce(v, 0) + coalesce(v_right, 0) > 1")
        return kept.join_latest(more, on={"r": "k"}, how="left", suffix="_more", shards=3)

    tester = newest_tester(steps)

    def table():
        return {
            (row["left_key"], row["right_key"]): (row["v"], row["v_right"], row["v_more"]) for row in tester.latest()
        }

    tester.batch(rows(("a", 1, "x", 2), ("b", 1, "y", 3)), into="left")
    tester.batch(rows(("x", 1, None, 70)), into="more")
    assert table() == {("a", "\\N"): (2, None, 70), ("b", "\\N"): (3, None, None)}
    tester.batch(rows(("c", 1, "x", 4), ("d", 1, "z", 1)), into="right")
    assert table() == {("a", "c"): (2, 4, 70), ("b", "\\N"): (3, None, None)}
    tester.restart()
    tester.batch(rows(("c", 2, "y", -4)), into="right")
    assert table() == {("a", "\\N"): (2, None, 70)}


ROW = st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.sampled_from(["x", "y", None]), st.integers(-2, 5))
SOME = st.lists(ROW, max_size=4)


@given(st.lists(st.tuples(SOME, SOME, st.booleans()), min_size=1, max_size=4), st.sampled_from(["inner", "full"]))
def test_groups_of_pairs(batches, how):
    """Rows below zero delete their key."""

    def steps(left, right):
        left, right = (side.where("v >= 0", on_leave="delete") for side in (left, right))
        pairs = left.join_latest(right, on="r", how=how, shards=2)
        return pairs.group_by("r", shards=2).agg(n=us.count(), v=us.sum("v"), w=us.sum("v_right"))

    tester = newest_tester(steps)
    newest: list[dict[str, tuple[str, int, str | None, int]]] = [{}, {}]
    for *batch, restart in batches:
        for name, some, side in zip(("left", "right"), batch, newest, strict=True):
            tester.batch(rows(*some), into=name)
            for row in some:
                if row[0] not in side or row[1] >= side[row[0]][1]:
                    side[row[0]] = row
        if restart:
            tester.restart()
        expected = {}
        for group in ("x", "y"):
            left, right = ([row[3] for row in side.values() if row[2] == group and row[3] >= 0] for side in newest)
            if (left and right) or (how == "full" and (left or right)):
                many = max(len(left), 1), max(len(right), 1)
                expected[group] = (
                    many[0] * many[1], sum(left) * many[1] if left else None, sum(right) * many[0] if right else None
                )  # fmt: skip
        assert {row["r"]: (row["n"], row["v"], row["w"]) for row in tester.latest()} == expected


@settings(max_examples=10)
@given(
    st.lists(st.tuples(SOME, SOME, st.booleans()), min_size=1, max_size=4),
    st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    st.sampled_from("kr"), st.booleans(), st.sampled_from([None, "l.v <= r.v"]),
)  # fmt: skip
def test_a_join_of_newest_rows_has_the_results_of_the_query(batches, how, on, near, condition):
    """Rows below zero delete their key."""

    def steps(left, right):
        left, right = (side.where("v >= 0", on_leave="delete") for side in (left, right))
        within = us.Interval(before=2, after=3) if near else None
        return left.join(right, on=on, how=how, within=within, condition=condition, shards=2)

    one, two = (f"(SELECT * FROM LATEST({name}) WHERE v >= 0) AS {name[0]}" for name in ("left_rows", "right_rows"))
    near_sql = "r.t BETWEEN l.t - INTERVAL '2' MICROSECONDS AND l.t + INTERVAL '3' MICROSECONDS"
    meets = [f"l.{on} = r.{on}", *([near_sql] if near else []), *([condition] if condition else [])]
    columns = "l.v AS v" if how in ("semi", "anti") else "l.v AS v, r.v AS v_right"
    text = f"SELECT {columns} FROM {one} {how.upper()} JOIN {two} ON {' AND '.join(meets)}"
    given = {"key": "k", "event_time": "t", "time_format": "epoch_us"}
    tester, query = (
        newest_tester(steps),
        StreamTester(text, dict.fromkeys(["left_rows", "right_rows"], SCHEMA), **given),
    )
    for *batch, restart in batches:
        for name, some in zip(("left", "right"), batch, strict=True):
            tester.batch(rows(*some), into=name)
            query.batch(rows(*some), into=f"{name}_rows")
        if restart:
            tester.restart()
        found, asked = (Counter((row["v"], row.get("v_right")) for row in each.latest()) for each in (tester, query))
        assert found == asked


def test_rows_expire_by_the_watermark_of_their_own_stream():
    tester = newest_tester(lambda left, right: left.join_latest(right, on="r", how="left", ttl=(10, 100), shards=2))
    tester.batch(rows(("a", 5, "x", 1), ("b", 9, "x", 2)), into="left")
    tester.batch(rows(("c", 0, "x", 3)), into="right", punctuation=99)
    assert {row["k"]: row["v_right"] for row in tester.latest()} == {"a": 3, "b": 3}
    tester.batch([], into="left", punctuation=16)
    assert {row["k"]: row["v_right"] for row in tester.latest()} == {"b": 3}
    tester.batch([], into="right", punctuation=101)
    tester.restart()
    assert {row["k"]: row["v_right"] for row in tester.latest()} == {"b": None}
    tester.batch(rows(("a", 17, "x", 4)), into="left")
    assert {row["k"]: row["v"] for row in tester.latest()} == {"a": 4, "b": 2}


@pytest.mark.parametrize("by", ["k", "r"])
def test_rows_that_expire_leave_their_group(by):
    tester = newest_tester(lambda left: left.group_by(by, ttl=10, shards=2).agg(n=us.count(), v=us.max("v")))
    tester.batch(rows(("a", 5, "a", 9), ("b", 9, "a", 2), ("c", 4, "c", 1)), punctuation=9)
    tester.batch([], punctuation=16)
    found = {row[by]: (row["n"], row["v"]) for row in tester.latest()}
    assert found == ({"b": (1, 2)} if by == "k" else {"a": (1, 2)})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"how": "outer"}, OptionError, "inner, left, right, full"), ({"ttl": -1}, OptionError, "ttl=-1"),
        ({"ttl": (1, 2, 3)}, OptionError, "a pair"), ({"ttl": "soon"}, OptionError, "ttl='soon'"),
        ({"shards": us.Shards(on_limit="drop_oldest")}, OptionError, "a join of newest rows"),
        ({"on": {"r": "line"}}, SchemaError, "line"), ({"on": {"r": "v"}}, SchemaError, "string and v"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        newest_tester(lambda left, right: left.join_latest(right, **{"on": "r", **arguments}))


def test_keys_that_have_no_text_and_windows_of_rows_that_expire_are_refused():
    def joined(left, right):
        return left.join_latest(right, on="r", how="full")

    with pytest.raises(SchemaError, match="as text"):
        StreamTester(joined, "k BINARY, t BIGINT, r STRING", key="k", event_time="t", time_format="epoch_us")
    for forgets in ("ttl", "tombstone_retention"):
        with pytest.raises(OptionError, match=f"leave {forgets} out"):
            newest_tester(lambda left, forgets=forgets: left.group_by("r", **{forgets: 5}).window("1 minute"))
    with pytest.raises(OptionError, match="an UpdateStream"):
        newest_tester(lambda left: left.join_latest(5, on="r"))


ROUTES = pa.table({"route": ["x", "y"], "name": ["Xanadu", "Yonge"], "v": pa.array([7, 8], pa.int64())})


def joining(**join):
    def steps(stream):
        return stream.join_table(**{"table": "routes", "on": {"r": "route"}, **join})

    return StreamTester(steps, SCHEMA, key="k", event_time="t", time_format="epoch_us", tables={"routes": ROUTES})


ROWS = [
    {"k": "a", "t": 1, "r": "x", "v": 1}, {"k": "b", "t": 1, "r": "z", "v": 2}, {"k": "c", "t": 1, "r": None, "v": 3},
    {"k": "d", "t": 1, "r": "y", "v": 4},
]  # fmt: skip


def test_each_batch_reads_the_table_as_it_is_then():
    run = joining(columns=["name"])
    assert [row["name"] for row in run.batch(ROWS[:1])] == ["Xanadu"]
    run.change_table("routes", pl.DataFrame({"route": ["x", "z"], "name": ["Xi", "Zed"], "v": [1, 2]}))
    assert [(row["k"], row["name"]) for row in run.batch(ROWS)] == [("a", "Xi"), ("b", "Zed")]
    run.restart()
    assert [row["name"] for row in run.batch(ROWS[:1])] == ["Xi"]
    run.change_table("routes", ROUTES.slice(0, 0))
    assert run.batch(ROWS) == []
    assert [row["k"] for row in run.latest()] == ["a", "b"]


def test_punctuation_and_tombstones_pass_and_windows_follow():
    def steps(stream):
        named = stream.join_table("routes", on={"r": "route"}, columns="name")
        windows = named.where("name <> 'Yonge'").window("10 seconds", emit="all")
        return windows.agg(n=us.count())

    run = StreamTester(
        steps, SCHEMA, key="k", event_time="t", time_format="epoch_s", watermark=us.Watermark.embedded(),
        tables={"routes": ROUTES},
    )  # fmt: skip
    assert run.batch(ROWS) == []
    assert [(row["k"], row["n"]) for row in run.batch(punctuation=20)] == [("a", 1)]
    gone = joining(how="left").batch([ROWS[1], {"k": "a", "t": 5, "_upstream": {"deleted": True}}])
    assert [(row["k"], row["name"], row.get("_upstream")) for row in gone] == [
        ("b", None, None), ("a", None, {"deleted": True}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("join", "error", "match"),
    [
        ({"on": "r"}, SchemaError, "the table lacks"),
        ({"on": {"q": "route"}}, SchemaError, "the stream lacks"),
        ({"on": {"v": "route"}}, SchemaError, "int64 and route"),
        ({"columns": ["nam"]}, SchemaError, "has no nam"),
        ({"suffix": "_x", "columns": ["name", "name"]}, SchemaError, "would be called name"),
        ({"how": "outer"}, OptionError, "inner, left, semi, anti"),
        ({"on": []}, OptionError, "on="),
        ({"how": "semi", "columns": ["name"]}, OptionError, "columns="),
        ({"table": "stops"}, OptionError, "routes"),
    ],
)
def test_arguments_of_a_table_that_make_no_sense(join, error, match):
    with pytest.raises(error, match=match):
        joining(**join)


def test_a_table_of_a_test_keeps_its_columns():
    run = joining()
    with pytest.raises(SchemaError, match="no column name any more"):
        run.change_table("routes", ROUTES.drop_columns(["name"]))
    with pytest.raises(SchemaError, match="given as dict"):
        run.change_table("routes", {})
