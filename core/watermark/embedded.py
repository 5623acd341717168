"""Punctuation that a feed sends among its own rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["embedded_punctuation"]


def embedded_punctuation(
    table: pa.Table, key: Sequence[str], time: str | None, deleted: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.bool_]:
    """Return which rows are punctuation of the feed itself.

    Such a row is no tombstone, and has a time if there is a time column. Columns beside the key and the time are null;
    if there are none, the key is null.
    """
    others = [name for name in table.column_names if name != time and name not in key]
    mask = np.ones(table.num_rows, dtype=np.bool_) if deleted is None else ~deleted
    for name in others:
        mask &= table.column(name).is_null().to_numpy()
    if time is not None:
        mask &= table.column(time).is_valid().to_numpy()
    if not others:
        for name in key:
            mask &= table.column(name).is_null().to_numpy()
    return mask
