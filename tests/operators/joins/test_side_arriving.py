import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import MalformedRowError, SchemaError
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.side import as_schema, checked_rows, checked_times

from .batches import table

SCHEMA = pa.schema([("t", pa.timestamp("us")), pa.field(SYSTEM, SYSTEM_TYPE)])


def rows(times, deleted=False, covered=1):
    n = len(times)
    return table(SCHEMA, [(time,) for time in times], covered=np.full(n, covered), deleted=np.full(n, deleted))


def test_a_table_with_the_columns_of_a_schema_is_not_cast():
    given = pa.table({"b": pa.array([1], pa.int64()), "a": ["x"]})
    kept = as_schema(given, pa.schema([("a", pa.string())]))
    assert kept.column("a").chunk(0).buffers()[2].address == given.column("a").chunk(0).buffers()[2].address
    other = pa.schema([pa.field("b", pa.int32(), nullable=False), ("a", pa.string())])
    assert as_schema(given, other).schema == other


def test_whole_rows_pass():
    given = rows([3, 5])
    assert checked_rows(given) is given
    assert checked_times(given, "t").tolist() == [3, 5]
    assert checked_rows(rows([])).num_rows == 0


def test_tombstones_pass_where_they_may_come():
    with pytest.raises(SchemaError, match="tombstones"):
        checked_rows(rows([3, 5], deleted=True))
    assert checked_rows(rows([3, 5], deleted=True), tombstones=True).num_rows == 2


def test_coalesced_rows_and_rows_without_a_time_are_refused():
    with pytest.raises(SchemaError, match="several updates"):
        checked_rows(rows([3], covered=2), tombstones=True)
    with pytest.raises(MalformedRowError, match="1 of 2 rows"):
        checked_times(rows([3, None]), "t")
