"""Tables to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from written import COLUMNS, Sink


@pytest.fixture
def engine() -> str:
    """Which engine the sinks of a test have; a test that is to be run with each is marked with `each_engine`."""
    return "rewrite"


@pytest.fixture
def make_sink(tmp_path: Path, engine: str) -> Any:
    def make(columns: pa.Schema = COLUMNS, *, system: bool = True, query_id: str = "query-1", **options: str) -> Sink:
        chosen = {"key": "k", "time": "t", "buckets": "4", "engine": engine, "indexLocation": str(tmp_path / "index")}
        chosen |= options
        return Sink(tmp_path, columns, {name: value for name, value in chosen.items() if value}, query_id, system)

    return make


@pytest.fixture
def sink(make_sink: Any) -> Sink:
    return make_sink()
