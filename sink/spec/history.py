"""The rows and columns that a table keeps of each key: whole rows, or the newest row of each part of a row."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...conf.errors import SchemaError
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.key import NO_KEY, Key
from .key_names import TIMES, column_named, shown_type

_LATEST = re.compile(r"latest(?:\s+(\d+))?")


@dataclasses.dataclass(frozen=True)
class History:
    """The number of newest rows of each key that a table keeps."""

    count: int | None = 1  # None keeps all

    @classmethod
    def parse(cls, value: str) -> History:
        """Parse ``latest``, ``latest 5`` or ``all``; other text is a ValueError."""
        lowered = value.strip().lower()
        if lowered == "all":
            return cls(None)
        found = _LATEST.fullmatch(lowered)
        if found is None or int(found.group(1) or 1) < 1:
            raise ValueError
        return cls(int(found.group(1) or 1))

    @property
    def latest(self) -> bool:
        return self.count == 1

    def __str__(self) -> str:
        if self.count is None:
            return "all"
        return "latest" if self.count == 1 else f"latest {self.count}"


def keeps_all(options: Mapping[str, Any]) -> bool:
    """Return True if a user's options, with names in any case, keep all rows: then no key is needed."""
    return any(name.lower() == "history" and str(value).strip().lower() == "all" for name, value in options.items())


class Kept(NamedTuple):
    """The rows and deletions that stay."""

    stays: Mask  # per row or deletion
    ties: Int64s  # pairs of one key and one time: the newest of them, and another


def newest_of_each(codes: Int64s, time: Int64s, arrival: Int64s, deleted: Mask, count: int) -> Kept:
    """Return each key's newest deletion, and its `count` newest rows after that, one for each time.

    Order is (time, arrival, position), and a deletion removes older rows whenever it comes. So the result
    depends neither on the order of rows nor on their batches. Rows have equal `codes` iff their keys are equal.
    """
    if len(codes) == 0:
        return Kept(np.zeros(0, dtype=np.bool_), np.empty((0, 2), dtype=np.int64))
    place = np.arange(len(codes))
    order = np.lexsort((place, arrival, time, codes))
    codes, time, deleted = codes[order], time[order], deleted[order]
    key = _numbered(np.diff(codes) != 0)
    group = _numbered((np.diff(codes) != 0) | (np.diff(time) != 0))
    last_deletion, last_row = _last_of(key, deleted)[key], _last_of(group, ~deleted)[group]
    row = (place == last_row) & (place > last_deletion)
    upto = np.cumsum(row)
    newer = upto[_last_of(key, np.ones_like(row))[key]] - upto
    stays = np.zeros_like(row)
    stays[order] = (row & (newer < count)) | (deleted & (place == last_deletion))
    last = _last_of(group, np.ones_like(row))[group]
    tied = np.flatnonzero(place != last)
    return Kept(stays, np.stack([order[last[tied]], order[tied]], axis=1))


def _numbered(begins: Mask) -> Int64s:
    """Return a number for each run of neighbours; `begins` marks the rows, after the first, at which a run begins."""
    return np.cumsum(np.concatenate([[False], begins]))


def _last_of(run: Int64s, chosen: Mask) -> Int64s:
    """Return each run's last chosen position, or -1."""
    last = np.full(int(run[-1]) + 1, -1, dtype=np.int64)
    places = np.flatnonzero(chosen)
    last[run[places]] = places  # the last of equal indices is the one that stays
    return last


_OUTSIDE = r"(?=(?:[^`]*`[^`]*`)*[^`]*$)"
_SEMICOLON, _BY = re.compile(f";{_OUTSIDE}"), re.compile(rf"(.+)\sby\s{_OUTSIDE}(.+)", re.IGNORECASE | re.DOTALL)


@dataclasses.dataclass(frozen=True)
class NullRule:
    """The columns in which a null leaves the value of an older row in place."""

    unchanged: Key | None = NO_KEY  # None is every column of the payload

    @classmethod
    def parse(cls, value: str) -> NullRule:
        """Parse ``null``, ``unchanged`` or ``unchanged: a, b``; other text is a ValueError."""
        word, colon, names = value.partition(":")
        word = word.strip().lower()
        if word == "null" and not colon:
            return cls()
        if word != "unchanged":
            raise ValueError
        return cls(Key.split(names) if colon else None)

    def __str__(self) -> str:
        if self.unchanged is None:
            return "unchanged"
        return f"unchanged: {self.unchanged.text}" if self.unchanged else "null"


class ColumnGroup(NamedTuple):
    """Columns that the key's row with the largest value in the column `by` decides."""

    columns: Key
    by: str

    @classmethod
    def parse(cls, value: str) -> tuple[ColumnGroup, ...]:
        """Parse ``lat, lon by pos_time; status by status_time``; other text is a ValueError."""
        found: list[ColumnGroup] = []
        for text in _SEMICOLON.split(value):
            parts = _BY.fullmatch(text.strip())
            if parts is None:
                raise ValueError
            (by,) = Key.split(parts[2])
            found.append(cls(Key.split(parts[1]), by))
        return tuple(found)

    def __str__(self) -> str:
        return f"{self.columns.text} by {Key((self.by,)).text}"


class Part(NamedTuple):
    """Columns of a row that one row of the key decides, apart from the rest of the row."""

    columns: tuple[str, ...]
    by: str | None  # the column that orders the rows; None is the order of whole rows
    by_value: bool  # a row without a value in the (one) column decides nothing

    @property
    def name(self) -> str:
        """The name under which a row records the part's order, if it comes from another row."""
        return self.columns[0]


@dataclasses.dataclass(frozen=True)
class PartialUpdates:
    """The choice of the parts of a row that are decided apart, with names as in the schema.

    Two rows of one key are compared in each part by themselves. So the table does not depend on the order in which
    rows arrive, nor on their batches.
    """

    nulls: NullRule = NullRule()
    groups: tuple[ColumnGroup, ...] = ()

    def __bool__(self) -> bool:
        return self != PartialUpdates()

    def resolved(self, fields: dict[str, Any], deciding: Iterable[str]) -> PartialUpdates:
        """Return the choice with names as the schema spells them; raise a SchemaError for one that does not fit.

        `deciding` are the columns of the key and of the order of whole rows.
        """
        fixed = set(deciding)
        groups: list[ColumnGroup] = []
        taken = dict.fromkeys(fixed, "decides which row is newer, or is of the key")
        for group in self.groups:
            by = column_named(group.by, fields, "columnGroups")
            if fields[by] not in TIMES:
                raise SchemaError(
                    f"columnGroups orders by the column {by!r}, which is of type {shown_type(fields[by])}",
                    expected="a timestamp, a date or a number",
                    hint="cast it before writing",
                )
            columns = Key(column_named(name, fields, "columnGroups") for name in group.columns)
            for name in (by, *columns):
                if name in taken:
                    raise SchemaError(
                        f"columnGroups names the column {name!r}, which {taken[name]}",
                        expected="each column in one group at most, and no column of the key or of the rows' order",
                        hint="give each group a column of its own after the word by; columns in the order of whole "
                        "rows need no group",
                    )
                taken[name] = "is in a group already"
            groups.append(ColumnGroup(columns, by))
        unchanged = self.nulls.unchanged
        if unchanged is not None:
            unchanged = Key(column_named(name, fields, "nullMeans") for name in unchanged)
            if wrong := [name for name in unchanged if name in fixed or name in {group.by for group in groups}]:
                raise SchemaError(
                    f"nullMeans names {', '.join(wrong)}, which orders the rows, or is of the key",
                    expected="columns that order nothing",
                    hint="leave them out of nullMeans",
                )
        return PartialUpdates(NullRule(unchanged), tuple(groups))

    def parts(self, names: Iterable[str], deciding: Iterable[str]) -> tuple[Part, ...]:
        """Return the parts that are decided apart, of a table with these columns."""
        by = {name: group.by for group in self.groups for name in group.columns}
        ordering = {group.by for group in self.groups}
        payload = [name for name in names if name not in {*deciding, *ordering}]
        alone = payload if self.nulls.unchanged is None else [name for name in payload if name in self.nulls.unchanged]
        together = [
            Part((group.by, *(name for name in group.columns if name not in alone)), group.by, False)
            for group in self.groups
        ]
        return (*together, *(Part((name,), by.get(name), True) for name in alone))
