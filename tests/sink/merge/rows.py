"""Rows of three columns, as the merge's parts hand them to each other; no table."""

import json
from typing import Any

import numpy as np
import pyarrow as pa

from upstream.core.rows.key import Key
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.delta_format.latest_table import SEQ
from upstream.sink.merge.batch_rows import BatchRows
from upstream.sink.spec.history import History
from upstream.sink.spec.layout import Layout

LEAST, MOST = -(2**63), 2**63 - 1
DATA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.string()), (SEQ, pa.int64())])


def layout(time: str | None = "t", keep: int | None = 1, **more: Any) -> Layout:
    fields = tuple((name, json.dumps(kind)) for name, kind in (("k", "string"), ("t", "long"), ("v", "string")))
    return Layout(Key(("k",)), time, 4, fields, progress_time="t", history=History(keep), **more)


def data(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows (key, time, payload, number)."""
    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * 4, schema=DATA)


def batch(*rows: tuple[Any, ...], arrival: int = 100, **more: Any) -> pa.RecordBatch:
    """Rows (key, time, payload) as a source gives them, numbered from `seq` on."""
    seq = more.pop("seq", 0)
    plain = data(*((*row, 0) for row in rows)).drop_columns(SEQ)
    n = len(rows)
    system = system_array(
        source=more.pop("source", "feed"),
        seq=np.arange(seq, seq + n, dtype=np.int64),
        arrival_us=np.arange(arrival, arrival + n, dtype=np.int64),
        **more,
    )
    return plain.append_column(SYSTEM, system).combine_chunks().to_batches()[0]


def full(*rows: tuple[Any, ...]) -> BatchRows:
    """Rows (key, time, payload, number, arrival, first arrival, covered, deleted)."""
    columns = [np.array([row[at] for row in rows]) for at in range(4, 8)]
    return BatchRows(data(*(row[:4] for row in rows)), *columns)


def shown(pending: BatchRows) -> list[tuple[Any, ...]]:
    columns = [pending.rows.column(name).to_pylist() for name in ("k", "t", "v")]
    return list(zip(*columns, pending.covered.tolist(), strict=True))
