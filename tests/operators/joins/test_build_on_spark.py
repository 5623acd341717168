import pytest
from kit.feeds import csv_feed, write_csv

import upstream as us

pytestmark = pytest.mark.spark


def test_a_plan_with_every_join_is_explained_and_each_has_a_place(spark, tmp_path):
    write_csv(tmp_path / "feed" / "a.csv", "key,ms,value", [("k", 1, 1)])

    def feed():
        return us.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")

    near = us.Interval(before=1, after=1)
    by_time = feed().join(feed(), on="key", within=near).join_as_of(feed(), on="key", suffix="_as_of", tolerance=5)
    text = by_time.explain(checkpoint=tmp_path / "checkpoint")
    assert "join, as of join_time and ms, on key, tolerance 5 milliseconds, how inner" in text
    assert "times ms and ms, within 1 millisecond before to 1 millisecond after, how inner, emit all" in text
    assert "upstream-joins/0" in text
    assert "upstream-joins/1" in text
    newest = feed().join_latest(feed(), on={"key": "key"}).group_by("value").agg(n=us.count())
    text = newest.explain(checkpoint=tmp_path / "other")
    assert "groups of newest rows, group by value, aggregates n=count(*)" in text
    assert text.count("newest rows, on value") == 1
    assert [f"upstream-latest/{number}" in text for number in range(4)] == [True, True, True, False]
    assert "two branches" not in text
