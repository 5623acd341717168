"""Groups of newest rows without Spark."""

from __future__ import annotations

import upstream as us
from upstream.testing import StreamTester


def test_a_key_leaves_one_group_and_enters_another():
    def steps(stream):
        return stream.group_by("r", shards=2).agg(n=us.count(), v=us.sum("v"))

    tester = StreamTester(
        steps, "k STRING, t BIGINT, r STRING, v BIGINT", key="k", event_time="t", time_format="epoch_us"
    )
    tester.batch([{"k": "a", "t": 1, "r": "x", "v": 3}, {"k": "b", "t": 1, "r": "x", "v": 4}])
    assert [(row["r"], row["n"], row["v"]) for row in tester.latest()] == [("x", 2, 7)]
    tester.batch([{"k": "a", "t": 2, "r": "y", "v": 5}])
    found = {row["r"]: (row["n"], row["v"]) for row in tester.latest()}
    assert found == {"x": (1, 4), "y": (1, 5)}
    tester.batch([{"k": "b", "t": 2, "r": "y", "v": 1}])
    assert {row["r"]: (row["n"], row["v"]) for row in tester.latest()} == {"y": (2, 6)}
