"""Steps after results that are retracted: what takes them, and what refuses them before anything runs."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.testing import StreamTester


def stream_tester(steps):
    schema, watermark = "k STRING, t BIGINT, r STRING, v BIGINT", us.Watermark.embedded()
    return StreamTester(steps, schema, key="k", event_time="t", time_format="epoch_us", watermark=watermark)


def early(left, right, how="left", results="all"):
    emit = us.Emission(results, early=True)
    return left.join(right, on="k", within=us.Interval(before=2, after=3), how=how, emit=emit, shards=2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"how": "inner"}, "how='inner'"),
        ({"how": "semi"}, "how='semi'"),
        ({"shards": us.Shards(state_limit="1 GB", on_limit="drop_oldest")}, "early=True with"),
    ],
)
def test_joins_that_cannot_be_given_early(more, words):
    given = {"on": "k", "within": us.Windower(5), "how": "left", "emit": us.Emission(early=True), **more}
    with pytest.raises(OptionError, match=words):
        stream_tester(lambda left, right: left.join(right, **given))


def test_the_key_of_results_names_each_of_them():
    made = {}

    def steps(left, right):
        made.update({how: early(left, right, how) for how in ("left", "full", "anti")})
        made["latest"] = early(left, right, results="latest")
        made["as of"] = left.join_as_of(right, on="k", emit=us.Emission(early=True))
        return made["left"]

    stream_tester(steps)
    assert {name: each.key for name, each in made.items()} == {
        "left": ("k", "left_row", "right_row"),
        "full": ("k", "left_row", "right_row"),
        "anti": ("k", "left_row"),
        "latest": ("k",),
        "as of": ("k", "left_row"),
    }
    assert made["anti"].schema.names == ["k", "t", "r", "v", "left_row", "_upstream"]
    assert all(each.plan.retracts for each in made.values())


def test_an_anti_join_of_a_stream_whose_key_has_the_name():
    schema = "left_row STRING, k STRING, t BIGINT"
    with pytest.raises(SchemaError, match="the left stream's key has left_row"):
        StreamTester(
            lambda left, right: early(left, right, "anti"), schema, key="left_row", event_time="t",
            time_format="epoch_us",
        )  # fmt: skip


@pytest.mark.parametrize(
    "step",
    [
        lambda stream: stream.distinct("r", late="pass"),
        lambda stream: stream.window("5 microseconds", tombstones="drop"),
        lambda stream: stream.group_by("r").agg(n=us.count()).window("5 microseconds"),
        lambda stream: stream.group_by("r").agg(),
        lambda stream: stream.join(stream, on="k", within=5, emit="latest", suffix="_two"),
        lambda stream: stream.join(stream.group_by("k").agg(n=us.count()), on="k", within=5),
    ],
    ids=["late", "tombstones", "no time", "no aggregate", "emit", "no time to join"],
)
def test_arguments_that_retracted_results_do_not_take(step):
    with pytest.raises(OptionError):
        stream_tester(lambda left, right: step(early(left, right)))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda stream: stream.ordered(), "ordered"),
        (lambda stream: stream.merge(stream), "merge"),
        (lambda stream: stream.union(stream), "numbers by itself"),
        (lambda stream: stream.queue(policy="shed"), "drop some of the rows"),
        (lambda stream: stream.where("v > 0", on_leave="keep"), "no longer hold"),
        (lambda stream: stream.session_window("5 minutes").agg(n=us.count()), "retracts them"),
        (lambda stream: stream.join_as_of(stream, on="k"), "retracts them"),
    ],
    ids=["ordered", "merge", "union", "shed", "keep", "sessions", "as of"],
)
def test_what_needs_final_results_refuses_those_that_are_retracted(step, words):
    with pytest.raises(SchemaError, match=words):
        stream_tester(lambda left, right: step(early(left, right)))
    with pytest.raises((OptionError, SchemaError)):  # what has no time, as well
        stream_tester(lambda left, right: step(left.join_latest(right, on="k")))


def test_a_filter_of_a_plain_stream_keeps_the_earlier_row_unless_asked():
    for on_leave, left in ((None, [5]), ("keep", [5]), ("delete", [])):
        more = {} if on_leave is None else {"on_leave": on_leave}
        test = stream_tester(lambda rows, more=more: rows.where("v > 0", **more))
        test.batch([{"k": "a", "t": 1, "v": 5}])
        test.batch([{"k": "a", "t": 2, "v": -5}])
        assert [row["v"] for row in test.latest()] == left


Row = dict[str, Any]
Step = tuple[Callable[..., Any], Callable[..., list[Row]]]
"""A step of the stream, and what it makes of a relation."""

BEFORE, AFTER = 2, 3


def rows() -> st.SearchStrategy[list[Row]]:
    columns = st.sampled_from("ab"), st.integers(0, 12), st.sampled_from(["x", "y", None]), st.integers(-3, 5)
    return st.lists(st.fixed_dictionaries(dict(zip("ktrv", columns, strict=True))), max_size=5)


def paired(one: Row | None, other: Row | None) -> Row:
    """A result of both rows; those of the right have the names of their columns with a suffix."""
    found = {name: None if one is None else one[name] for name in "ktrv"}
    found |= {f"{name}_right": None if other is None else other[name] for name in "trv"}
    return found | {"k": (one or other or {})["k"]}


def in_full(left: Any, right: Any) -> Any:
    return early(left, right, "full")


def all_in_full(left: list[Row], right: list[Row]) -> list[Row]:
    def meets(one: Row, two: Row) -> bool:
        return one["k"] == two["k"] and -BEFORE <= two["t"] - one["t"] <= AFTER

    found = [paired(one, two) for one in left for two in right if meets(one, two)]
    found += [paired(one, None) for one in left if not any(meets(one, two) for two in right)]
    return found + [paired(None, two) for two in right if not any(meets(one, two) for one in left)]


THEN: list[Step] = [
    (lambda stream: stream, lambda found: found),
    (lambda stream: stream.where("v_right > 0"), lambda found: [r for r in found if (r["v_right"] or 0) > 0]),
    (
        lambda stream: stream.where("v IS NULL OR v > v_right"),
        lambda found: [r for r in found if r["v"] is None or (r["v_right"] is not None and r["v"] > r["v_right"])],
    ),
    (
        lambda stream: stream.select("v", "v_right + 1 AS v_right", "r"),
        lambda found: [{**r, "v_right": None if r["v_right"] is None else r["v_right"] + 1} for r in found],
    ),
    (lambda stream: stream.queue(policy="in-place", budget=3, shards=2), lambda found: found),
    (lambda stream: stream.queue(policy="append", budget=3, shards=2), lambda found: found),
]


def newest(found: list[Row]) -> list[Row]:
    """The newest row of each key, by time, and of two with one time the later arrival."""
    by_key: dict[str, Row] = {}
    for row in found:
        if row["k"] not in by_key or row["t"] >= by_key[row["k"]]["t"]:
            by_key[row["k"]] = row
    return list(by_key.values())


def summed(found: list[Row]) -> dict[Any, tuple[int, int]]:
    groups: dict[Any, Counter[str]] = {}
    for row in found:
        if row["r"] is not None:
            groups.setdefault(row["r"], Counter()).update(n=1, v=row["v_right"] or 0)
    return {group: (each["n"], each["v"]) for group, each in groups.items()}


def time_of(row: Row) -> int:
    return max(row[name] for name in ("t", "t_right") if row[name] is not None)


def bag(found: list[Row]) -> Counter[Any]:
    return Counter((row["k"], row["v"], row["v_right"]) for row in found)


@given(
    st.lists(st.sampled_from(THEN), max_size=2),
    st.sampled_from(["rows", "groups", "distinct", "windows", "join", "near"]),
    st.lists(st.tuples(rows(), rows(), rows(), st.booleans()), min_size=1, max_size=4),
)
def test_pipelines_over_changes_equal_the_question_to_all_rows(then, last, batches):
    def steps(left: Any, right: Any, more: Any) -> Any:
        stream = in_full(left, right)
        for step, _ in then:
            stream = step(stream)
        if last == "groups":
            return stream.group_by("r", shards=3).agg(n=us.count(), v=us.sum("v_right"))
        if last == "distinct":
            return stream.distinct("r", shards=3)
        if last == "windows":
            return stream.window("5 microseconds", by="r", shards=3).agg(n=us.count())
        if last == "join":
            return stream.select("v", "v_right", "r").join_latest(more, on="k", suffix="_more", shards=2)
        if last == "near":
            table, near = more.where("v > 0", on_leave="delete"), us.Interval(before=1, after=2)
            given: dict[str, Any] = {"within": near, "how": "left", "condition": "l.v <=> NULL OR l.v < r.v"}
            return stream.join(table, on="k", suffix="_more", shards=2, **given)
        return stream

    tester = stream_tester(steps)
    left, right, third = list[Row](), list[Row](), list[Row]()
    for one, two, three, restart in batches:
        tester.batch(one, into="left")
        tester.batch(two, into="right")
        tester.batch(three, into="more")
        left += one
        right += two
        third += three
        if restart:
            tester.restart()
    tester.end()
    found = all_in_full(left, right)
    for _, step in then:
        found = step(found)
    held = tester.latest()
    if last == "groups":
        assert {row["r"]: (row["n"], row["v"] or 0) for row in held} == summed(found)
    elif last == "distinct":
        assert Counter(row["r"] for row in held) == Counter({row["r"]: 1 for row in found if row["r"] is not None})
    elif last == "windows":
        expected = Counter((row["r"], time_of(row) // 5) for row in found if row["r"] is not None)
        assert {(row["r"], row["window_id"]): row["n"] for row in held} == expected
    elif last == "join":
        partners = {row["k"]: row["v"] for row in newest(third)}
        expected = Counter(
            (row["k"], row["v"], row["v_right"], partners[row["k"]]) for row in found if row["k"] in partners
        )
        assert Counter((row["k"], row["v"], row["v_right"], row["v_more"]) for row in held) == expected
    elif last == "near":
        newest_rows = {row["k"]: row for row in newest(third)}

        def partner(row: Row) -> int | None:
            other = newest_rows.get(row["k"], {"v": 0})
            meets = other["v"] > 0 and -1 <= other["t"] - time_of(row) <= 2
            return other["v"] if meets and (row["v"] is None or row["v"] < other["v"]) else None

        assert Counter((row["k"], row["v"], row["v_right"], row["v_more"]) for row in held) == Counter(
            (row["k"], row["v"], row["v_right"], partner(row)) for row in found
        )
    else:
        assert bag(held) == bag(found)
