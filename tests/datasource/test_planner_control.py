"""A source's limits change with the next batch, are in its offset, and go back."""

from upstream.core.feedback.control import ControlChange, ControlLog
from upstream.storage.folder import TableFolder

from .driven_feeds import Driver


def driver(tmp_path, **changes):
    feeds = Driver("a", "b", checkpoint_location=str(tmp_path), **changes)
    feeds.send("a", *range(100))
    return feeds, ControlLog(TableFolder(str(tmp_path)))


def taken(feeds, limit=40):
    """The rows of the next batch; None if there is none."""
    tasks = feeds.tasks(limit)
    return None if tasks is None else sum(part.span for task in tasks for _, part in task.ranges)


def test_a_limit_is_that_of_the_control_from_the_next_batch_on_until_it_is_undone(tmp_path):
    feeds, log = driver(tmp_path)
    assert taken(feeds) == 40
    assert feeds.offset["limits"] == {"maxRowsPerTrigger": 40}
    source = f"source/{feeds.offset['id']}"
    log.put(0, ControlChange(source, "maxRowsPerTrigger", 7, 1))
    log.put(1, ControlChange("source/another", "maxRowsPerTrigger", 1, 1))
    assert [taken(feeds), taken(feeds)] == [7, 7], "each batch by a new planner"
    assert feeds.offset["limits"] == {"maxRowsPerTrigger": 7}
    log.put(2, ControlChange(source, "maxRowsPerTrigger", None, 2))
    assert taken(feeds, 20) == 20
    log.put(3, ControlChange(source, "maxRowsPerTrigger", "none", 3))
    assert taken(feeds, 1) == 26
    assert feeds.offset["limits"] == {}


def test_a_change_without_input_makes_one_batch_which_has_it(tmp_path):
    feeds, log = driver(tmp_path)
    assert [taken(feeds, None), taken(feeds)] == [100, None]
    bounds = feeds.offset["progress"]["a"]["bound"]
    log.put(0, ControlChange("sink", "target", "p99 < 1 s", 1))
    assert [taken(feeds), taken(feeds)] == [0, None]
    assert feeds.offset["control"]["sink"] == {"target": "p99 < 1 s"}
    assert feeds.offset["progress"]["a"]["bound"] == bounds, "no row has come, so nothing is promised"


def test_a_change_before_the_first_row_makes_a_batch_too(tmp_path):
    feeds, log = Driver("a", checkpoint_location=str(tmp_path)), ControlLog(TableFolder(str(tmp_path)))
    log.put(0, ControlChange("sink", "target", "p99 < 1 s", 1))
    assert [taken(feeds), taken(feeds)] == [0, None]
    feeds.send("a", *range(10))
    assert taken(feeds) == 10


def test_how_long_a_silent_feed_holds_the_others_back_changes(tmp_path):
    feeds, log = driver(tmp_path, idle="advance", idle_after_us=60_000_000)
    feeds.send("b", 5)
    assert feeds.look(limit=None) == {"a": 99, "b": 5}
    feeds.send("a", *range(100, 110))
    assert "b" not in feeds.look(20)
    log.put(0, ControlChange(f"source/{feeds.offset['id']}", "idleAfter", "10 seconds", 1))
    assert feeds.look(1) == {"b": 109}
    assert feeds.offset["limits"] == {"idleAfter": "10.0 s"}
