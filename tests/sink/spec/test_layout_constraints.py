"""Tables that ask more of their rows than the sink evaluates."""

import json
from typing import Any

import pytest
from deltalake import DeltaTable
from kit.races import commit_between
from pyspark.sql.types import LongType, StringType, StructField, StructType

from upstream.conf.errors import SchemaError, TableError
from upstream.sink.spark_writer import stream_writer
from upstream.sink.spec.layout import demands_of

ENGINES = ("rewrite", "vectors")


def field(name: str, kind: Any = "long", *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def test_a_check_constraint_is_refused_by_name(sink):
    sink.batch(0, [sink.rows([(1, 0, "a")])])
    DeltaTable(str(sink.path)).alter.add_constraint({"early": "t < 3"})
    with pytest.raises(TableError, match=r"constraint early CHECK \(t < 3\).*DROP CONSTRAINT.*engine=merge"):
        sink.writer()
    assert sink.latest() == {1: (0, "a")}


def test_a_constraint_that_comes_with_a_batch_under_way_ends_it(sink, monkeypatch):
    sink.batch(0, [sink.rows([(1, 0, "a")])])
    commit_between(monkeypatch, lambda: DeltaTable(str(sink.path)).alter.add_constraint({"early": "t < 3"}))
    with pytest.raises(TableError, match="constraint early"):
        sink.batch(1, [sink.rows([(2, 9, "b")])])
    assert sink.latest() == {1: (0, "a")}


def test_what_a_table_may_ask():
    inner = {"type": "struct", "fields": [field("x", nullable=False)]}
    invariant = json.dumps({"expression": {"expression": "i > 0"}})
    fields = [
        field("n", nullable=False),
        field("i", **{"delta.invariants": invariant}),
        field("g", **{"delta.generationExpression": "n * 2"}),
        field("id", **{"delta.identity.start": 1, "delta.identity.step": 1}),
        field("s", inner),
        field("l", {"type": "array", "elementType": inner, "containsNull": False}),
        field("m", {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}),
        field("plain", comment="NOT NULL"),
    ]
    assert demands_of(fields, {"delta.constraints.pos": "n > 0", "delta.enableDeletionVectors": "true"}) == [
        "the constraint pos CHECK (n > 0)",
        "n is NOT NULL",
        f"i has the invariant {invariant}",
        "g is generated as n * 2",
        "id is an identity column",
        "s.x is NOT NULL",
        "the elements of l are NOT NULL",
        "l.x is NOT NULL",
        "the values of m are NOT NULL",
    ]


def test_text_under_a_collation_is_refused(sink):
    schema = StructType([StructField("k", StringType("UTF8_LCASE")), StructField("t", LongType())])
    with pytest.raises(SchemaError, match="k is under the collation UTF8_LCASE"):
        stream_writer(sink.given, schema, overwrite=False)
