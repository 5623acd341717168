"""A check of a new query's first batch: a wrong option makes all of its rows malformed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..conf.column_names import parts_of
from ..conf.errors import SchemaError
from ..core.rows.columns import column_at
from ..core.rows.event_times import NO_TIME, event_time_us
from ..core.watermark.embedded import embedded_punctuation
from .connectors.contract import Chunk, Connector, Range
from .options import SourceOptions

__all__ = ["check_usable"]


def check_usable(connector: Connector, options: SourceOptions, ranges: Sequence[Range]) -> None:
    """Raise SchemaError if every row of a first batch is malformed; the query would end as if it had no input."""
    seen = _Unusable(options)
    columns = None if options.progress == "embedded" else seen.columns(connector.schema().names)
    for part in ranges if seen.judges else ():
        for chunk in connector.read(part, columns, seen):
            if seen.usable(chunk):
                return
    seen.refuse()


class _Unusable:
    """Rows that cannot be used, with a sample for the error."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._time = options.time if options.looks() else None
        self._null = dict.fromkeys(options.key, True)
        self._timed = False
        self._rows = self._lines = 0
        self._wrong = ""

    @property
    def judges(self) -> bool:
        return bool(self._options.key) or self._time is not None

    def columns(self, names: Sequence[str]) -> list[str]:
        wanted = [name if name in names else parts_of(name)[0] for name in self._options.key]
        return list(dict.fromkeys([*wanted, *([] if self._time is None else [self._time])]))

    def usable(self, chunk: Chunk) -> bool:
        """Return whether any row has a key and a time, or is punctuation of the feed's own."""
        options, rows = self._options, chunk.rows
        good = np.ones(rows.num_rows, dtype=np.bool_)
        for name in options.key:
            there = column_at(rows, name).is_valid().to_numpy()
            self._null[name] &= not there.any()
            good &= there
        if self._time is not None:
            timed = event_time_us(rows.column(self._time), options.time_format, options.time_zone) != NO_TIME
            timed = timed if chunk.deleted is None else timed | chunk.deleted
            self._timed |= bool(timed.any())
            good &= timed
        if chunk.misfits is not None:
            good &= np.array([reason is None for reason in chunk.misfits])
            if not self._wrong and chunk.misfits[0] is not None:
                self._wrong = f"of the first one {chunk.misfits[0]}"
        if options.progress == "embedded":
            good |= embedded_punctuation(rows, options.key, options.time, chunk.deleted)
        if not self._wrong and rows.num_rows:
            self._wrong = f"the first reads {str(rows.slice(0, 1).to_pylist()[0])[:200]}"
        self._rows += rows.num_rows
        return bool(good.any())

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        if not self._wrong:
            where = place + (f", line {line}" if line is not None else "")
            self._wrong = f"the first, at {where}, reads {text[:200]!r}: {reason}"
        self._lines += 1

    def refuse(self) -> None:
        count = self._rows + self._lines
        if not count:
            return
        if not self._rows:
            raise SchemaError(
                f"none of the {count} rows of the first batch can be read; {self._wrong}",
                hint="correct the options that say how the data is written (`schema`, `fileFormat`, `sep`, `time`), or "
                "wait until there are rows "
                "that can be read",
            )
        if self._time is not None and not self._timed:
            raise SchemaError(
                f"none of the {count} rows of the first batch has a time in the column {self._time!r} that can be "
                f"read; {self._wrong}",
                expected="times from the year 1 to 9999",
                hint="correct the option `time`, or say with `timeFormat` how it is written",
            )
        null = [name for name, always in self._null.items() if always]
        where = f"in the column {', '.join(map(repr, null or self._options.key))}"
        both = "" if null or self._time is None else f" and a time in the column {self._time!r}"
        raise SchemaError(
            f"none of the {count} rows of the first batch has a key {where}{both}; {self._wrong}",
            expected="a value in each column of the key: a row without one updates nothing",
            hint="correct the option `key`, or the options that say how the data is written (`schema`, `select`, "
            "`header`, `sep`), or wait until "
            "there are rows with a key",
        )
