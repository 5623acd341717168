"""What an operator has promised of single keys, and whether its rows keep to it."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from upstream.core.rows.system_column import SYSTEM
from upstream.operators.runtime.feeds import ALL_FEEDS


class KeyPromises:
    """The promises of an operator's shards so far."""

    def __init__(self) -> None:
        self.known: dict[tuple[int | None, tuple[Any, ...]], Any] = {}

    def check(self, result: pa.Table | None, key: Sequence[str], time: str, shard: int = 0) -> None:
        """Fail if a row lies below what was promised before, or stands behind punctuation; then take the promises."""
        rows = [] if result is None else result.to_pylist()
        marks = [row[SYSTEM]["punctuation"] for row in rows]
        assert marks == sorted(marks), "punctuation comes after the rows"
        for row, mark in zip(rows, marks, strict=True):
            values = tuple(row[name] for name in key)
            if not mark:
                for (where, pattern), bound in self.known.items():
                    if where in (None, shard) and _speaks_for(pattern, values):
                        assert bound is not None, f"{values} has ended"
                        assert row[time] >= bound, f"{values} below {bound}"
            elif any(value is not None for value in values):
                place = (None if row[SYSTEM]["source"] == ALL_FEEDS else shard, values)
                if place in self.known:
                    before = self.known[place]
                    assert before is not None and (row[time] is None or row[time] > before), "promised again"
                self.known[place] = row[time]


def _speaks_for(pattern: Sequence[Any], values: Sequence[Any]) -> bool:
    return all(one is None or one == two for one, two in zip(pattern, values, strict=True))
