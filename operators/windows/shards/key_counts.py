"""The rows that a shard has counted for each key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ....core.rows.exact_integers import Int64s
from ...runtime.entries import Keys
from ...runtime.key_pages import KeyPages
from ...runtime.store import Store
from ..sessions import key_numbers

__all__ = ["KeyCounts"]

_NUMBER, _COUNTED = "__upstream_number", "__upstream_counted"


class KeyCounts:
    """A count for each key, on pages of keys."""

    def __init__(self, store: Store, key: pa.Schema, saved: Any) -> None:
        self._key = key
        self._schema = pa.schema([*key, *(pa.field(name, pa.int64()) for name in (_COUNTED, _NUMBER))])
        self._pages = KeyPages(store, "numbers", _NUMBER, self._schema, saved)

    def to_json(self) -> dict[str, Any]:
        return self._pages.to_json()

    def count(self, keys: pa.Table, rows: Int64s) -> Int64s:
        """Add `rows` to the counts of `keys`, each key once, and return the counts before."""
        numbers = key_numbers(keys)
        pages = self._pages.pages(numbers)
        kept = self._pages.read(pages)
        known, asked = Keys([kept.select(self._key.names), keys]).codes
        count = np.zeros(1 + max(int(known.max(initial=-1)), int(asked.max(initial=-1))), dtype=np.int64)
        count[known] = kept.column(_COUNTED).to_numpy()
        before = count[asked]
        others = kept.filter(pa.array(~np.isin(known, asked)))
        now = keys.append_column(_COUNTED, pa.array(before + rows)).append_column(_NUMBER, pa.array(numbers))
        now = now.select(self._schema.names).cast(self._schema)
        self._pages.write(pages, kept.num_rows, pa.concat_tables([others, now]))
        return before
