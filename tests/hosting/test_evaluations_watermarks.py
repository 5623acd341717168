import json

from upstream.core.rows.exact_integers import LOWEST
from upstream.core.watermark.bounds import AFTER_ALL, BEFORE_ALL
from upstream.hosting.evaluations import BatchContext, Watermarks
from upstream.hosting.host_plan import Domain
from upstream.hosting.messages import Message

BOTH = Domain("both", ("r", "s"), "event")
ONE = Domain("one", ("r",), "event")
NEWEST = Domain("newest", ("r",), "arrival")
STORED = Domain("stored", (), "event")


def heard(stream, arrival, newest=None, **bounds):
    return Message({"stream": stream, "bounds": bounds, "arrival": arrival, "newest": newest}, None, "")


def again(marks):
    return Watermarks(json.loads(json.dumps(marks.to_json())))


def test_a_domain_waits_for_all_of_its_streams():
    marks = Watermarks({})
    found = marks.moments([BOTH, ONE, STORED], [heard("r", 7, f=10, g=20)])
    assert found == {
        "both": BatchContext(None, None, 7),
        "one": BatchContext(None, 10, 7),
        "stored": BatchContext(AFTER_ALL, AFTER_ALL, 7, AFTER_ALL),
    }
    marks = again(marks)
    assert marks.moments([BOTH, ONE], [heard("s", 6, f=5)]) == {
        "both": BatchContext(None, 5, 7),
        "one": BatchContext(10, 10, 7, 10),
    }


def test_several_tasks_speak_of_one_feed():
    marks = Watermarks({})
    assert marks.moments([ONE], [heard("r", 1, f=9), heard("r", 3, f=4)])["one"] == BatchContext(None, 9, 3)


def test_a_watermark_never_goes_back():
    marks = Watermarks({})
    marks.moments([ONE], [heard("r", 1, f=9)])
    marks = again(marks)
    assert marks.moments([ONE], [heard("r", 2, g=BEFORE_ALL)])["one"] == BatchContext(9, 9, 2, 9)
    assert marks.moments([ONE], [heard("r", 3, g=4)])["one"] == BatchContext(9, 9, 3, 9)
    assert marks.moments([ONE], [heard("r", 3, g=AFTER_ALL, f=12)])["one"] == BatchContext(9, 12, 3, 9)


def test_a_domain_that_is_new_begins_where_its_streams_are():
    marks = Watermarks({})
    marks.moments([ONE], [heard("r", 1, f=9), heard("s", 1, f=4)])
    assert marks.moments([BOTH], [heard("s", 2, f=8)])["both"] == BatchContext(4, 8, 2, 4)


def test_a_domain_that_is_new_does_not_go_back_with_a_feed_that_is_new():
    marks = Watermarks({})
    marks.moments([], [heard("r", 1, f=15)])
    assert marks.moments([ONE], [heard("r", 2, g=11)])["one"] == BatchContext(15, 15, 2, 15)
    assert again(marks).moments([ONE], [])["one"] == BatchContext(15, 15, 2, 15)


def test_by_the_clock_of_arrival_rows_that_have_passed_are_enough():
    marks = Watermarks({})
    assert marks.moments([NEWEST], [heard("s", 3)])["newest"] == BatchContext(None, None, 3)
    assert marks.moments([NEWEST], [heard("r", 4)])["newest"] == BatchContext(None, None, 4)
    assert again(marks).moments([NEWEST], [])["newest"] == BatchContext(LOWEST, None, 4, 5)


def test_rows_that_came_before_count_by_the_newest_of_them():
    marks = Watermarks({})
    assert marks.moments([ONE], [heard("r", 1, newest=30, f=9)])["one"] == BatchContext(None, 9, 1)
    found = again(marks).moments([ONE, BOTH], [heard("s", 2, newest=50, f=8)])
    assert found == {"one": BatchContext(9, 9, 2, 9, newest=30), "both": BatchContext(None, 8, 2, None, newest=30)}
