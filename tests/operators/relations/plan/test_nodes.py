"""Nodes are values with a schema, made of their inputs' schemas."""

import pyarrow as pa
from kit.continuous import QUOTE, TRADE, relation

from upstream.expressions.nodes import Field
from upstream.operators.relations.plan.nodes import Join, Project, Sample, TimeRange, UnboundedWindow, WindowOver, walk

HOUR = WindowOver(TRADE, TimeRange(3_600_000_000))
OTHER = Project(WindowOver(QUOTE, UnboundedWindow()), (("bid", Field("bid", pa.float64())),))


def test_equal_plans_are_one_key():
    sql = "SELECT sym, COUNT(*) AS n FROM trade [RANGE 1 HOUR] WHERE n > 3 GROUP BY sym"
    one, other = relation(sql), relation(sql)
    assert one is not other
    assert {one: 1}[other] == 1
    assert len({one, relation(sql.replace("1 HOUR", "2 HOURS"))}) == 2


def test_walk_gives_inputs_first():
    sampled = WindowOver(Sample(TRADE, 5.0), UnboundedWindow())
    plan = Join(sampled, OTHER, "inner")
    assert list(walk(plan)) == [TRADE, sampled.stream, sampled, QUOTE, OTHER.source, OTHER, plan]
