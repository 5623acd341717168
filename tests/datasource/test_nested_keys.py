"""A key that is a field of a struct, where rows are read: resolved once, coalesced by, and missed where it is null."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.memory_connector import MemoryConnector

from upstream.conf.errors import MalformedRowError, SchemaError
from upstream.core.rows.key import Key
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.options import SourceOptions
from upstream.datasource.planner import BatchPlanner
from upstream.datasource.schema import leaving_schema, shape_of, with_columns
from upstream.datasource.task import Reading

SCHEMA = pa.schema([("a", pa.struct([("b", pa.struct([("id", pa.int64())])), ("v", pa.int64())])), ("us", pa.int64())])


def options(key: str, **more: Any) -> SourceOptions:
    chosen: dict[str, Any] = {"time": "US", "time_format": "epoch_us", "progress": "ordered", "coalesce": True}
    return SourceOptions(key=Key((key,)), **{**chosen, "on_malformed": "fail", **more})


def read(folder: Path, rows: list[tuple[Any, int]], key: str = "a.B.id", **more: Any) -> list[dict[str, Any]]:
    """The rows that leave a task, punctuation apart."""
    given_options = options(key, **more)
    shape = shape_of(leaving_schema(SCHEMA, given_options), given_options)
    keyed_options = with_columns(given_options, shape)
    assert keyed_options.key == ("`a`.`b`.`id`",) and keyed_options.time in ("us", None)
    table = pa.table([[row[at] for row in rows] for at in range(2)], schema=SCHEMA)
    connector = MemoryConnector({"feed": table}, most=1 << 20)
    planner = BatchPlanner(connector, keyed_options, shape, clock=lambda: 0)
    end = planner.plan(BatchPlanner.initial(), Limit())
    reading = Reading(keyed_options, shape, connector, str(folder))
    tasks = planner.tasks(BatchPlanner.initial(), end)
    found = [row for task in tasks for batch in reading.read(task) for row in batch.to_pylist()]
    return [row for row in found if not row["_upstream"]["punctuation"]]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), min_size=1, max_size=20))
def test_the_newest_row_of_each_leaves(tmp_path_factory, rows):
    given_rows = [({"b": {"id": key}, "v": number}, us) for number, (key, us) in enumerate(rows)]
    model: dict[int, tuple[int, int]] = {}
    for number, (key, us) in enumerate(rows):
        if key not in model or us >= model[key][0]:
            model[key] = us, number
    found = read(tmp_path_factory.getbasetemp(), given_rows)
    assert {row["a"]["b"]["id"]: (row["us"], row["a"]["v"]) for row in found} == model
    assert len(found) == len(model)
    assert sum(row["_upstream"]["covered"] for row in found) == len(rows)


@pytest.mark.parametrize("missing", [None, {"b": None, "v": 1}, {"b": {"id": None}, "v": 1}])
def test_a_null_on_the_way_is_a_key_that_is_null(tmp_path, missing):
    with pytest.raises(MalformedRowError, match="`id`' is null"):
        read(tmp_path, [({"b": {"id": 1}, "v": 1}, 5), (missing, 6)])


@pytest.mark.parametrize(
    ("key", "more", "message"),
    [
        ("a.nothing", {}, "key column 'a.nothing' is not among the columns a, us"),
        ("`a.v`", {}, "key column '`a.v`' is not among the columns"),
        ("a.v", {"progress": "embedded"}, "watermark=embedded with a key that is a field of a column: `a`.`v`"),
    ],
)
def test_keys_that_cannot_be(key, more, message):
    with pytest.raises(SchemaError, match=message):
        leaving_schema(SCHEMA, options(key, **more))


def test_a_sequence_decides_which_row_leaves_and_is_no_time(tmp_path):
    rows = [({"b": {"id": 1}, "v": v}, us) for v, us in ((2, 1), (1, 9), (2, 3), (2, 2))]
    by = {"time": None, "time_format": None, "progress": None, "sequence": Key(("a.V", "us"))}
    assert [(row["a"]["v"], row["us"]) for row in read(tmp_path, rows, **by)] == [(2, 3)]
    with pytest.raises(MalformedRowError, match=r"sequence column .* is null"):
        read(tmp_path, [*rows, ({"b": {"id": 1}, "v": None}, 5)], **by)
    with pytest.raises(SchemaError, match="sequenceBy column 'lsn' is not among"):
        read(tmp_path, rows, **{**by, "sequence": Key(("lsn",))})
