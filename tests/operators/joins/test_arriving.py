"""What a join by time refuses of the rows that come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import MalformedRowError, SchemaError
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.operators.joins.arriving import as_schema, checked_rows, checked_times


def rows(times, deleted=False, covered=1):
    n = len(times)
    system = system_array(
        source="f", seq=np.arange(n), arrival_us=np.arange(n), covered=np.full(n, covered), deleted=np.full(n, deleted)
    )
    return pa.table({"t": pa.array(times, pa.timestamp("us")), SYSTEM: system})


def test_a_table_with_the_columns_of_a_schema_is_not_cast():
    table = pa.table({"b": pa.array([1], pa.int64()), "a": ["x"]})
    kept = as_schema(table, pa.schema([("a", pa.string())]))
    assert kept.column("a").chunk(0).buffers()[2].address == table.column("a").chunk(0).buffers()[2].address
    other = pa.schema([pa.field("b", pa.int32(), nullable=False), ("a", pa.string())])
    assert as_schema(table, other).schema == other


def test_whole_rows_pass():
    given = rows([3, 5])
    assert checked_rows(given) is given
    assert checked_times(given, "t").tolist() == [3, 5]
    assert checked_rows(rows([])).num_rows == 0


def test_tombstones_pass_where_they_may_come():
    with pytest.raises(SchemaError, match="2 rows before the join are tombstones"):
        checked_rows(rows([3, 5], deleted=True))
    assert checked_rows(rows([3, 5], deleted=True), tombstones=True).num_rows == 2


def test_coalesced_rows_and_rows_without_a_time_are_refused():
    with pytest.raises(SchemaError, match="several updates"):
        checked_rows(rows([3], covered=2), tombstones=True)
    with pytest.raises(MalformedRowError, match="1 of 2 rows have no time in 't'"):
        checked_times(rows([3, None]), "t")
