"""What a table records, and a query need not repeat."""

from kit.sink import Sink

from upstream.sink.table.table import recorded_options


def test_key_time_and_buckets_are_the_tables(tmp_path):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    found = recorded_options({"path": str(sink.path)})
    assert (found["key"], found["time"], found["buckets"]) == ("k", "t", "4")
    # A late output needs a time, which is known only when the table has been read.
    given = {"path": str(sink.path), "lateOutput": "late", "conflictOutput": "conflicts", "keep": "2"}
    assert recorded_options(given)["time"] == "t"
    assert recorded_options({"path": str(tmp_path / "t"), "lateOutput": "late"}) == {}
