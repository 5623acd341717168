"""Steps after results that are taken back: what takes them, and what refuses them before anything runs."""

from __future__ import annotations

import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.testing import StreamTester

SCHEMA = "k STRING, t BIGINT, v BIGINT"


def stream_tester(steps):
    return StreamTester(steps, SCHEMA, key="k", event_time="t", time_format="epoch_us")


def early(left, right, how="left", **more):
    return left.join(right, on="k", within=us.interval(before=2, after=3), how=how, early=True, shards=2, **more)


def newest(left, right):
    return left.join_latest(right, on="k", shards=2)


@pytest.mark.parametrize("how", ["inner", "semi"])
def test_a_join_that_takes_nothing_back_is_not_given_early(how):
    with pytest.raises(OptionError, match=f"how='{how}' gives each result at once"):
        stream_tester(lambda left, right: early(left, right, how))


def test_early_is_true_or_false():
    with pytest.raises(OptionError, match="early='yes'"):
        stream_tester(lambda left, right: left.join(right, on="k", tumbling=5, how="left", early="yes"))


@pytest.mark.parametrize(
    "more", [{"output_order": "event_time"}, {"state_limit": "1 GB", "on_limit": "drop_oldest"}], ids=["order", "limit"]
)
def test_what_would_hold_back_or_lose_what_is_to_be_taken_back(more):
    with pytest.raises(OptionError, match="early=True with"):
        stream_tester(lambda left, right: early(left, right, **more))


def test_the_key_of_results_names_each_of_them():
    made = {}

    def steps(left, right):
        made.update({how: early(left, right, how) for how in ("left", "full", "anti")})
        made["latest"] = early(left, right, output="latest")
        made["as of"] = left.join_as_of(right, on="k", early=True)
        return made["left"]

    stream_tester(steps)
    assert {name: each.key for name, each in made.items()} == {
        "left": ("k", "left_row", "right_row"),
        "full": ("k", "left_row", "right_row"),
        "anti": ("k", "left_row"),
        "latest": ("k",),
        "as of": ("k", "left_row"),
    }
    assert made["anti"].schema.names == ["k", "t", "v", "left_row", "_upstream"]
    assert all(each.plan.retracts for each in made.values())


def test_an_anti_join_gives_a_row_and_takes_it_back():
    test = stream_tester(lambda left, right: early(left, right, "anti"))
    test.batch([{"k": "a", "t": 10, "v": 1}, {"k": "a", "t": 30, "v": 2}, {"k": "b", "t": 10, "v": 3}])
    assert [(row["k"], row["t"], row["v"]) for row in test.latest()] == [("a", 10, 1), ("a", 30, 2), ("b", 10, 3)]
    (gone,) = test.batch([{"k": "a", "t": 31, "v": 0}], into="right")
    assert (gone["t"], gone["v"], gone["_upstream"]) == (30, None, {"deleted": True})
    assert [(row["k"], row["t"], row["v"]) for row in test.latest()] == [("a", 10, 1), ("b", 10, 3)]


def test_an_anti_join_of_a_stream_whose_key_has_the_name():
    schema = "left_row STRING, k STRING, t BIGINT"
    with pytest.raises(SchemaError, match="the left stream's key has left_row"):
        StreamTester(
            lambda left, right: early(left, right, "anti"), schema, key="left_row", event_time="t",
            time_format="epoch_us",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda stream: stream.ordered(), "ordered"),
        (lambda stream: stream.distinct(), "distinct"),
        (lambda stream: stream.merge(stream), "merge"),
        (lambda stream: stream.union(stream), "numbers by itself"),
        (lambda stream: stream.queue(policy="shed"), "drop some of the rows"),
        (lambda stream: stream.where("v > 0", on_leave="keep"), "no longer hold"),
        (lambda stream: stream.window("5 minutes").agg(n=us.count()), "takes them back"),
        (lambda stream: stream.join(stream, on="k", tumbling=5), "takes them back"),
        (lambda stream: stream.join_as_of(stream, on="k"), "takes them back"),
    ],
    ids=["ordered", "distinct", "merge", "union", "shed", "keep", "window", "join", "as of"],
)
def test_what_needs_final_results_refuses_those_that_are_taken_back(step, words):
    with pytest.raises(SchemaError, match=words):
        stream_tester(lambda left, right: step(early(left, right)))


@pytest.mark.parametrize(
    "step", [lambda s: s.ordered(), lambda s: s.distinct(), lambda s: s.join(s, on="k", tumbling=5)]
)
def test_results_without_a_time_are_refused_as_well(step):
    with pytest.raises((OptionError, SchemaError)):
        stream_tester(lambda left, right: step(newest(left, right)))


def test_a_filter_deletes_what_passes_no_more():
    test = stream_tester(lambda left, right: newest(left, right).where("v_right > 0"))
    test.batch([{"k": "a", "t": 1, "v": 1}], into="left")
    test.batch([{"k": "a", "t": 1, "v": 5}], into="right")
    assert [row["v_right"] for row in test.latest()] == [5]
    test.batch([{"k": "a", "t": 2, "v": -5}], into="right")
    assert test.latest() == []
    test.batch([{"k": "a", "t": 3, "v": 7}], into="right")
    assert [row["v_right"] for row in test.latest()] == [7]


def test_a_filter_of_a_plain_stream_keeps_the_earlier_row_unless_asked():
    for on_leave, left in ((None, [5]), ("keep", [5]), ("delete", [])):
        more = {} if on_leave is None else {"on_leave": on_leave}
        test = stream_tester(lambda rows, more=more: rows.where("v > 0", **more))
        test.batch([{"k": "a", "t": 1, "v": 5}])
        test.batch([{"k": "a", "t": 2, "v": -5}])
        assert [row["v"] for row in test.latest()] == left
