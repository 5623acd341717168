"""ISTREAM, DSTREAM and RSTREAM: a relation's changes, or all its rows, as a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa

from ...conf.errors import QueryError
from ...core.rows.exact_integers import LOWEST, Int64s
from .arrangement import OperatorState
from .operator import Operator
from .zsets import (
    BEGINNING,
    OLD,
    TIME,
    WEIGHT,
    Span,
    Steps,
    cumulated,
    delta_frame,
    int64s,
    key_numbers,
    live,
    numbered,
)

_MOST = 1_000_000
"""The most rows that the multiples of a period may emit in one step."""
_MOST_BYTES = 1 << 28
"""Their size limit. A step that cannot be split may emit four times as much."""
_MOST_STEPS = 64
"""How many full steps the results of one jump of event time may take, since other queries wait for them."""


class DeltaStream(Operator):
    """The rows that a relation gains (``istream``) or loses (``dstream``) at each time."""

    def __init__(self, schema: pa.Schema, kind: Literal["istream", "dstream"]) -> None:
        super().__init__(schema)
        self._sign = 1 if kind == "istream" else -1

    forgets = True

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (changes,) = inputs
        return changes.with_columns(pl.col(WEIGHT) * self._sign).filter(pl.col(WEIGHT) > 0)


class RelationStream(Operator):
    """All rows of a relation at each of its changes, or at the multiples of a period. State: the relation."""

    def __init__(self, schema: pa.Schema, every_us: int | None, state: OperatorState) -> None:
        super().__init__(schema)
        self._every = every_us
        self._values = state.values
        self._kept = state.arrangement("rows", schema.append(pa.field(WEIGHT, pa.int64())))
        self.is_behind = False
        """Whether the next step ends before the low-watermark, because this or another operator has many periods."""

    forgets = True

    def reach(self, rows: int, operators: int = 1) -> int | None:
        """Return for how many µs one step may emit results after this many new rows; None without a limit.

        The operators share the memory of a step.
        """
        if self._every is None:
            return None
        if "width" not in self._values:  # the first rows show it
            return self._every if rows else self._every * _MOST
        most = min(_MOST, _MOST_BYTES // int(self._values["width"]) // operators)
        return self._every * max(1, most // (int(self._values["copies"]) + rows + 1))

    @property
    def rows(self) -> int:
        """The number of distinct rows of the relation."""
        return self._kept.rows

    def acts(self, span: Span) -> bool:
        return self._every is not None and self._kept.rows > 0

    def due(self, low_watermark: int) -> int | None:
        if self._every is None or self._kept.rows == 0:
            return None
        return -(-low_watermark // self._every) * self._every

    def rests_from(self, inputs: int) -> int:
        if self._every is None:
            return inputs
        last = int(self._values.get("last", LOWEST))
        return max(inputs, last) if self._kept.rows == 0 else -(-max(inputs, last) // self._every) * self._every + 1

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (changes,) = inputs
        columns = list(self.dtypes)
        times = np.unique(int64s(changes, TIME))
        points = times if self._every is None else self._multiples(times, span, self._every)
        if changes.height == 0 and (len(points) == 0 or self._kept.rows == 0):
            return self.nothing
        old = self._kept.read_all().with_columns(pl.lit(OLD).alias(TIME))
        together = pl.concat([old.select(*columns, TIME, WEIGHT), changes.select(*columns, TIME, WEIGHT)])
        rows = numbered(together, columns)
        steps = cumulated(rows.ids, int64s(together, TIME), int64s(together, WEIGHT))
        distinct = together.select(columns)[rows.first]
        width = int(distinct.estimated_size() // max(distinct.height, 1)) + 1
        self._values["width"] = max(width, int(self._values.get("width", 0)))
        self._values["copies"] = int(self._values.get("copies", 0)) + int(int64s(changes, WEIGHT).sum())
        if changes.height:
            self._values["last"] = int(times[-1])
            last = steps.lasts & (steps.values[0] != 0)
            kept = distinct[steps.ids[last]].with_columns(pl.Series(WEIGHT, steps.values[0][last]))
            self._kept.write(kept, key_numbers(kept, columns))
        points = _occupied(points, together)
        # NumPy's own union hashes whole numbers, which takes a second for a million multiples of a period.
        everywhere = np.sort(np.concatenate([steps.times, points]))
        everywhere = everywhere[np.append(True, everywhere[1:] != everywhere[:-1])]
        is_point = np.zeros(len(everywhere), dtype=np.bool_)
        is_point[np.searchsorted(everywhere, points)] = True
        zeros = np.zeros(len(everywhere), dtype=np.int64)
        found: list[pl.DataFrame] = []
        left = 4 * _MOST_BYTES // width
        for part in live(steps, np.zeros(len(distinct), dtype=np.int64), Steps(zeros, everywhere, [])):
            wanted = is_point[part.positions]
            at = everywhere[part.positions[wanted]]
            left -= int(part.weights[wanted].sum())
            if left < 0:
                raise QueryError(
                    f"all rows at each change, of about {width} bytes each, have more than {4 * _MOST_BYTES} bytes",
                    hint="EMIT CHANGES gives what comes; or keep fewer rows, or make shorter ones",
                )
            found.append(delta_frame(distinct[part.ids[wanted]], at, part.weights[wanted]))
        if self._every is not None:
            self._count(4 * _MOST_BYTES // width - left, width, span)
        return pl.concat(found) if found else self.nothing

    def _count(self, rows: int, width: int, span: Span) -> None:
        """Refuse a jump of event time with so many results that other queries would wait for long.

        A step that does not follow the last one of a jump begins another jump.
        """
        if not self.is_behind:
            self._values.pop("jump", None)
            return
        end, size = self._values.get("jump", (None, 0))
        size = (size if end == span.before else 0) + max(rows * width, rows * _MOST_BYTES // _MOST)
        self._values["jump"] = [span.until, size]
        if size > _MOST_STEPS * _MOST_BYTES:
            raise QueryError(
                f"a jump of event time has results of more than {_MOST_STEPS * _MOST_BYTES >> 30} GiB at the multiples "
                f"of {self._every} µs",
                expected=f"at most that, and at most {_MOST_STEPS * _MOST:,} rows",
                hint="take a longer period, or EMIT CHANGES, which gives what comes",
            )

    def _multiples(self, times: Int64s, span: Span, every: int) -> Int64s:
        """Return the multiples of the period in the span at which the relation may have rows.

        At the end of all input, they are those up to the first one at or after the last change.
        """
        begin, end = span.before, span.until
        if span.start == BEGINNING or self._kept.rows == 0:
            later = times[times > BEGINNING]
            begin = max(begin, int(later[0])) if len(later) else end
        if span.ends:
            last = int(times[-1]) if len(times) else int(self._values.get("last", LOWEST))
            end = last + every
        first = -(-begin // every) * every
        return np.arange(first, end, every) if first < end else np.empty(0, dtype=np.int64)


def _occupied(points: Int64s, rows: pl.DataFrame) -> Int64s:
    """Return the times, in order, at which a relation has rows, given its changes."""
    changes = rows.group_by(TIME).agg(pl.col(WEIGHT).sum()).sort(TIME)
    copies = np.append(0, np.cumsum(int64s(changes, WEIGHT)))
    return points[copies[np.searchsorted(int64s(changes, TIME), points, side="right")] > 0]
