"""Nodes are values with a schema, made of their inputs' schemas."""

from __future__ import annotations

import pyarrow as pa
from kit.continuous import BUSES, QUOTE, TRADE, relation

from upstream.queries.expressions.nodes import Field
from upstream.queries.relations.nodes import (
    Aggregate,
    Aggregation,
    Changes,
    Distinct,
    Hop,
    Join,
    Latest,
    Order,
    Project,
    Range,
    Sample,
    SetOperation,
    Top,
    Unbounded,
    Where,
    Windowed,
    walk,
)

HOUR = Windowed(TRADE, Range(3_600_000_000))
OTHER = Project(Windowed(QUOTE, Unbounded()), (("bid", Field("bid", pa.float64())),))
PX = Field("px", pa.float64())


def test_equal_plans_are_one_key() -> None:
    sql = "SELECT sym, COUNT(*) AS n FROM trade [RANGE 1 HOUR] WHERE n > 3 GROUP BY sym"
    one, other = relation(sql), relation(sql)
    assert one is not other
    assert {one: 1}[other] == 1
    assert len({one, relation(sql.replace("1 HOUR", "2 HOURS"))}) == 2


def test_schemas_follow_from_inputs() -> None:
    names = TRADE.schema.names
    assert HOUR.schema == TRADE.schema
    assert Windowed(TRADE, Hop(2, 1)).schema == TRADE.schema
    assert Windowed(TRADE, Hop(2, 1, columns=True)).schema.names == [*names, "window_start", "window_end"]
    assert Windowed(BUSES, Latest()).schema == BUSES.schema
    assert Join(HOUR, OTHER, "left").schema.names == [*names, "bid"]
    for how in ("semi", "anti", "null_aware_anti"):
        assert Join(HOUR, OTHER, how).schema == HOUR.schema
    total = Aggregation("total", "sum", (PX,), pa.float64())
    assert Aggregate(HOUR, (("s", Field("sym", pa.string())),), (total,)).schema == pa.schema(
        {"s": pa.string(), "total": pa.float64()}
    )
    for node in (Distinct(HOUR), Top(HOUR, (Order(PX),), 3), Changes(HOUR, "istream"), Where(HOUR, PX)):
        assert node.schema == HOUR.schema
        assert node.inputs == (HOUR,)
    assert SetOperation(HOUR, HOUR, "union", all=True).schema == HOUR.schema


def test_walk_gives_inputs_first() -> None:
    sampled = Windowed(Sample(TRADE, 5.0), Unbounded())
    plan = Join(sampled, OTHER, "inner")
    assert list(walk(plan)) == [TRADE, sampled.stream, sampled, QUOTE, OTHER.source, OTHER, plan]
