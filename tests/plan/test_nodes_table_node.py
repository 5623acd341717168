"""A join with a table in a plan."""

import pyarrow as pa

from upstream.plan.fingerprint import needs_checkpoint
from upstream.plan.nodes import joins_tables
from upstream.testing import StreamTester


def test_a_plan_that_joins_a_table_needs_the_checkpoint_and_keeps_key_and_time():
    plans = []

    def steps(stream):
        plans.append(stream.plan)
        found = stream.join_table("names", on="k").where("name IS NOT NULL")
        plans.append(found.plan)
        return found

    names = pa.table({"k": ["a"], "name": ["A"]})
    StreamTester(steps, "k STRING, t BIGINT", key="k", event_time="t", time_format="epoch_us", tables={"names": names})
    before, after = plans
    assert not joins_tables(before)
    assert not needs_checkpoint(before)
    assert joins_tables(after)
    assert needs_checkpoint(after)
    (join,) = after.inputs
    assert (join.key, join.time, join.left_out) == (("k",), "t", None)
    assert "names" in join.text
