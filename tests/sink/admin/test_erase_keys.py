"""`LatestTable.key_bucket`: where the rows of a key lie."""

from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from kit.sink import Sink

import upstream
from upstream.conf.errors import OptionError, TableError


def test_it_is_where_the_rows_are(tmp_path):
    columns = pa.schema([("a", pa.decimal128(10, 2)), ("b", pa.string()), ("t", pa.int64())])
    sink = Sink(tmp_path, columns, options={"time": "t", "buckets": "7", "key": "a,b"})
    keys = [(Decimal(value), other) for value in ("1.5", "-99.25") for other in ("", "a", "straße")]
    sink.batch(0, [sink.rows([(*key, 1) for key in keys])])
    found = {(row["a"], row["b"]): row["_upstream_bucket"] for row in pl.read_delta(str(sink.path)).to_dicts()}
    assert found == {key: upstream.LatestTable(sink.path).key_bucket(*key) for key in keys}
    assert len(set(found.values())) > 1


def test_what_is_no_key_is_refused(tmp_path):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 1, "x")])])
    path = str(sink.path)
    with pytest.raises(OptionError, match=r"2 values for the key .* one each for k int64"):
        upstream.LatestTable(path).key_bucket(1, 2)
    for wrong in ("one", 1.5, 2**63, None):
        with pytest.raises(OptionError, match=r"is no key .* types k int64"):
            upstream.LatestTable(path).key_bucket(wrong)
    with pytest.raises(TableError, match="there is no table"):
        upstream.LatestTable(tmp_path / "none").key_bucket(1)
