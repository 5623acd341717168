"""What a Delta table holds, read by delta-rs' own engine, which reads deletion vectors too."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable


def read_table(path: Path | str, version: int | None = None) -> pa.Table:
    return pa.RecordBatchReader.from_stream(DeltaTable(str(path), version).scan()).read_all()


def read_frame(path: Path | str) -> pl.DataFrame:
    found = pl.from_arrow(read_table(path))
    assert isinstance(found, pl.DataFrame)
    return found


def read_rows(path: Path | str, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a table, some columns of them, in order."""
    found = read_table(path)
    return sorted(zip(*(found.column(name).to_pylist() for name in columns), strict=True))


def read_by_key(path: Path | str, key: str, *values: str, version: int | None = None) -> dict[Any, Any]:
    """The rows of a table by their key, which is there once: one value by itself, several as a tuple."""
    found = read_table(path, version)
    columns = [found.column(name).to_pylist() for name in values]
    rows = columns[0] if len(values) == 1 else list(zip(*columns, strict=True))
    by_key = dict(zip(found.column(key).to_pylist(), rows, strict=True))
    assert len(by_key) == found.num_rows, "a key is in the table twice"
    return by_key


def read_letters(path: Path | str, reason: str = "") -> list[dict[str, Any]]:
    """The payloads of a table of dead letters, with their origins and reasons; of one reason, or of all."""
    if not DeltaTable.is_deltatable(str(path)):
        return []
    rows = [row for row in read_table(path).to_pylist() if reason in row["reason"]]
    return [{**json.loads(row["payload"]), "origin": row["origin"], "reason": row["reason"]} for row in rows]
