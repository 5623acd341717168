"""Arguments of joins that need no Spark."""

import datetime as dt

import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError, StateLimitError
from upstream.testing import StreamTester


def stream_tester(steps):
    return StreamTester(steps, "k STRING, t BIGINT, v BIGINT", key="k", event_time="t", time_format="epoch_us")


NEAR = us.interval(before=2, after=3)


def test_results_of_windows_are_joined():
    def counts(left, right):
        one, two = (each.window("10 seconds", output="all", shards=2).agg(n=us.count()) for each in (left, right))
        return one.join(two, on="k", within=us.interval(), how="left", shards=2)

    tester = StreamTester(counts, "k STRING, t TIMESTAMP", key="k", event_time="t")
    at = [dt.datetime(2024, 1, 1, 0, 0, second, tzinfo=dt.timezone.utc) for second in range(30)]
    tester.batch([{"k": "a", "t": at[each]} for each in (1, 2, 12)] + [{"k": "b", "t": at[3]}], into="left")
    tester.batch([{"k": "a", "t": at[9]}], into="right")
    found = sorted((row["k"], row["window_id"] % 2, row["n"], row["n_right"]) for row in tester.end())
    first = int(at[0].timestamp()) // 10 % 2
    assert found == sorted([("a", first, 2, 1), ("a", 1 - first, 1, None), ("b", first, 1, None)])


def bounded(**limit):
    near = us.interval(before=99, after=99)
    return lambda left, right: left.join(right, on="k", within=near, how="left", shards=1, **limit)


def test_a_limit_of_the_state_may_change():
    tester = stream_tester(bounded(state_limit=4000))
    rows = [{"k": "a", "t": at, "v": at} for at in range(400)]
    with pytest.raises(StateLimitError, match="state_limit=4000"):
        tester.batch(rows, into="left")
    tester.restart(bounded(state_limit="1 MB"))
    tester.batch(rows, into="left")
    tester.batch([{"k": "b", "t": 3, "v": 0}], into="right")
    assert len(tester.end()) == 400


def in_order(**given):
    given = {"within": us.interval(before=2, after=2), "output_order": "event_time", "shards": 2, **given}
    return stream_tester(lambda left, right: left.join(right, on="k", **given))


ADAPTIVE = {"release": "adaptive", "cost": 1e7, "time_format": "epoch_us"}


@pytest.mark.parametrize("given", [{"release": "sync"}, {"release": "filter"}, ADAPTIVE], ids=lambda it: it["release"])
def test_results_in_the_order_of_time_run_without_spark(given):
    tester = in_order(**given)
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
    tester = stream_tester(lambda left, right: left.join(right, on="k", tumbling=7, how=how, shards=2))
    rows = [{"k": "a", "t": 6, "v": 1}, {"k": "a", "t": 7, "v": 2}, {"k": "b", "t": 6, "v": 3}]
    given = tester.batch(rows, into="left") + tester.batch([{"k": "a", "t": 0, "v": 9}], into="right") + tester.end()
    assert sorted(given, key=lambda row: row["v"]) == [row for row in rows if row["v"] in found]


def test_joins_in_a_row_with_a_condition_then_windows():
    def steps(one, two, three):
        first = one.join(two, on="k", within=NEAR, shards=2, condition="l.v <= r.v")
        last = first.join(three, on="k", within=NEAR, suffix="_third", shards=3).where("v_third > 5")
        return last.window("10 us", output="all", shards=2, time_format="epoch_us").agg(
            n=us.count(), last=us.max("join_time_left")
        )

    tester = stream_tester(steps)
    tester.batch([{"k": "a", "t": 1, "v": 1}, {"k": "a", "t": 2, "v": 9}], into="one")
    tester.batch([{"k": "a", "t": 3, "v": 2}, {"k": "a", "t": 4, "v": 3}], into="two")
    tester.batch([{"k": "a", "t": 5, "v": 6}, {"k": "a", "t": 6, "v": 5}], into="three")
    assert [(row["k"], row["window_id"], row["n"], row["last"]) for row in tester.end()] == [("a", 0, 2, 4)]


@pytest.mark.parametrize(
    ("problem", "match"),
    [
        ({"tumbling": 5}, "both within and tumbling"),
        ({"how": "outer"}, "inner, left, right, full, semi, anti"),
        ({"how": "semi", "output": "latest"}, "output='latest'"),
        ({"condition": "v > 3"}, "ambiguous"),
        ({"shards": 0}, "shards=0"),
        ({"on": []}, r"on=\[\]"),
        ({"on": {"k": "route"}}, "has not"),
        ({"on": {"k": "v"}}, "string and v"),
        ({"state_limit": "much"}, "a size such as"),
        ({"on_limit": "shrug"}, "fail, drop_oldest"),
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
        (lambda one, two: one.join(two, on="k", tumbling=5, output="latest").window("1 s"), "newest pair"),
        (lambda one, two: one.join_as_of(two, on="k", how="full"), "inner, left"),
        (lambda one, two: one.join_as_of(two, on="k", tolerance=-1), "not negative"),
        (lambda one, two: one.join_as_of(two, on="k", tolerance="1 hour"), "time_format"),
    ],
)
def test_streams_that_do_not_meet(steps, match):
    with pytest.raises((OptionError, SchemaError), match=match):
        stream_tester(steps)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "without an event time"),
        ({"event_time": "t", "time_format": "epoch_us", "watermark": us.Watermark.none()}, "promises nothing"),
    ],
)
def test_streams_without_a_time_or_a_promise_do_not_meet(given, match):
    for join in (lambda one, two: one.join(two, on="k", within=NEAR), lambda one, two: one.join_as_of(two, on="k")):
        with pytest.raises(OptionError, match=match):
            StreamTester(join, "k STRING, t BIGINT", key="k", **given)
