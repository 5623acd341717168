"""What a table's key needs, and steps that need final results."""

import pytest

import upstream as us
from upstream.conf.errors import SchemaError
from upstream.plan.properties import check_table_key
from upstream.testing import StreamTester


def stream_tester(steps):
    return StreamTester(steps, "k STRING, t BIGINT, v BIGINT", key="k", event_time="t", time_format="epoch_us")


def early(left, right, how="left"):
    return left.join(right, on="k", within=us.interval(before=2, after=3), how=how, early=True, shards=2)


def test_the_key_of_a_table_of_results_that_are_taken_back():
    made = {}

    def steps(left, right):
        made["outer"], made["anti"] = early(left, right).select("v"), early(left, right, "anti")
        made["newest"] = left.join_latest(right, on="k")
        made["filtered"] = early(left, right).where("v > 0")
        made["plain"] = left
        return made["outer"]

    stream_tester(steps)
    for name in ("anti", "filtered"):
        with pytest.raises(SchemaError, match="lacks left_row"):
            check_table_key(made[name].plan, ["k"])
        check_table_key(made[name].plan, ["k", "left_row", "right_row"])
    # A pair is at least as new as the row that it takes back, so the newest result of each value is right.
    check_table_key(made["outer"].plan, ["k"])
    check_table_key(made["newest"].plan, ["k"])
    check_table_key(made["plain"].plan, ["v"])
    with pytest.raises(SchemaError, match="lacks k"):
        check_table_key(made["outer"].plan, ["v"])
