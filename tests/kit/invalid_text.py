"""Text that is not UTF-8."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def not_utf_8(batch: pa.RecordBatch, *columns: str, at: Sequence[int] | None = None) -> pa.RecordBatch:
    """The rows with a byte that is no text in some columns: in all rows, or in those at some places."""
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in columns:
        texts: list[bytes] = arrays[name].cast(pa.binary()).to_pylist()
        chosen = range(len(texts)) if at is None else at
        texts = [b"\xff" if number in chosen else text for number, text in enumerate(texts)]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        arrays[name] = pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
