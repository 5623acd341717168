"""The skew of a feed's clock, batch by batch."""

from kit.journal import through_json

from upstream.core.watermark.policies import Skew

SPAN = 600_000_000


def test_what_is_measured_of_each_batch():
    skew = Skew()
    nothing = {"smallest": None, "largest": None, "latest": None, "since": 0, "batches": 0, "now": None, "before": None}
    assert skew.to_json() == nothing
    skew.observe(10, 30, 100)
    first = {"smallest": 70, "largest": 90, "latest": 70, "since": 100, "batches": 1, "now": [70, 90]}
    assert skew.to_json() == nothing | first
    skew.observe(25, 25, 110)
    assert (skew.smallest, skew.largest, skew.latest) == (70, 90, 85)
    skew.observe(0, 60, 115)
    assert (skew.smallest, skew.largest, skew.latest) == (55, 115, 55)
    skew.observe(300, 310, 300)
    assert (skew.smallest, skew.largest, skew.latest) == (-10, 115, -10)
    assert Skew(through_json(skew.to_json())).to_json() == skew.to_json()


def test_eight_batches_are_enough_to_judge():
    skew = Skew()
    for n in range(7):
        skew.observe(n, n, 2 * n)
    assert skew.spread is None
    skew.observe(7, 7, 14)
    assert skew.spread == 7


def test_a_span_is_over_after_ten_minutes_and_32_batches():
    early, few, over = Skew(), Skew(), Skew()
    for skew, batches in ((early, 32), (few, 31), (over, 32)):
        for _ in range(batches):
            skew.observe(0, 1, 5)
    early.observe(SPAN, SPAN, SPAN + 4)
    few.observe(SPAN, SPAN, SPAN + 5)
    over.observe(SPAN, SPAN, SPAN + 5)
    assert (early.to_json()["batches"], early.to_json()["before"]) == (33, None)
    assert (few.to_json()["batches"], few.to_json()["before"]) == (32, None)
    assert over.to_json() == {
        "smallest": 4, "largest": 5, "latest": 5, "since": SPAN + 5, "batches": 1, "now": [5, 5], "before": [4, 5],
    }  # fmt: skip
    assert over.spread == 1, "the span before is enough to judge by"
    assert Skew(through_json(over.to_json())).to_json() == over.to_json()
    over.observe(SPAN - 1, SPAN + 9, SPAN + 10)
    assert (over.smallest, over.largest) == (1, 11)


def test_a_backlog_is_forgotten_and_a_quiet_feed_is_not():
    second = 1_000_000
    skew = Skew()
    skew.observe(0, 10, 86_400 * second)  # a day's backlog
    for n in range(1, 200):
        now = (86_400 + 60 * n) * second
        skew.observe(now - 3 * second, now - 2 * second, now)
    assert (skew.smallest, skew.largest, skew.spread) == (2 * second, 3 * second, second)
    slow = Skew()
    slow.observe(0, 0, 7 * second)
    for n in range(1, 20):  # a row an hour
        slow.observe(n * 3600 * second, n * 3600 * second, (n * 3600 + 1) * second)
    assert slow.largest == 7 * second
