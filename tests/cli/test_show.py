"""`upstream show` of tables with names that Polars refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from kit.sink import Sink

from upstream.cli.show import show


@pytest.mark.parametrize("noon", [pa.timestamp("us", "UTC"), pa.timestamp("us")], ids=["numbers", "features by name"])
def test_names_with_spaces(tmp_path: Path, noon: pa.DataType, capsys: pytest.CaptureFixture[str]) -> None:
    columns = pa.schema([("the key", pa.int64()), ("t", pa.int64()), ("a,b", pa.string()), ("noon", noon)])
    sink = Sink(tmp_path, columns, {"key": "the key", "time": "t", "buckets": "2"})
    sink.batch(0, [sink.rows([(key, 1, f"v{key}", 0) for key in range(5)])])
    how = {"everything": False, "output": "json", "storage": {}, "order_by": '"the key" DESC'}
    show(str(sink.path), limit=2, where='"the key" < 4', columns=["a,b"], **how)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"a,b": "v3"}, {"a,b": "v2"}]
