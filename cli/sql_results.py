"""The table of a continuous query as people see it: its rows, and their changes."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from ..conf.errors import TableError
from .show import cell

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

__all__ = ["Changes", "Snapshot", "changes", "grid", "snapshot"]

_OWN = "_upstream_"
_NAN = float("nan")

Snapshot = tuple[int, "pl.DataFrame"]
"""A version of a table, and its rows."""

Changes = list[tuple[str, tuple[Any, ...]]]
"""``-`` and a removed row, or ``+`` and an added one."""


def snapshot(location: str, after: int, added: str | None = None) -> Snapshot | None:
    """Return the newest version of a table and its rows; None if no version is newer than `after`.

    `added` is the column that identifies rows and is not the query's, if there is one.
    """
    from ..delta_format.scan import scan_table
    from ..sink.admin.scan import open_table

    try:
        table = open_table(location)
    except TableError:
        return None  # its query has had no batch yet
    if table.version() <= after:
        return None
    frame = scan_table(table)
    names = [name for name in frame.collect_schema().names() if not name.startswith(_OWN) and name != added]
    return table.version(), frame.select(names).collect()


def changes(before: pl.DataFrame | None, after: pl.DataFrame) -> Changes:
    """Return the removed rows, then the added ones, each as often as it changed, in a fixed order."""
    had = collections.Counter() if before is None else collections.Counter(_hashable(row) for row in before.iter_rows())
    has = collections.Counter(_hashable(row) for row in after.iter_rows())
    gone = sorted((had - has).elements(), key=_order)
    come = sorted((has - had).elements(), key=_order)
    return [*(("-", row) for row in gone), *(("+", row) for row in come)]


def grid(rows: pl.DataFrame, most: int) -> RenderableType:
    """Return a table for a terminal, with at most so many rows."""
    from rich.console import Group
    from rich.table import Table

    found = Table(box=None, header_style="bold", pad_edge=False)
    for name, kind in rows.schema.items():
        found.add_column(name, justify="right" if kind.is_numeric() else "left", overflow="fold")
    ordered = sorted(rows.iter_rows(), key=_order)
    for row in ordered[:most]:
        found.add_row(*map(cell, row))
    return Group(found, f"{most:,} of {len(ordered):,} rows") if len(ordered) > most else found


def _hashable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    """Return a hashable form of a value, which is one and the same object for each NaN."""
    if isinstance(value, (list, dict)):
        return cell(value)
    return _NAN if _is_nan(value) else value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124 what NaN is


def _order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a sort key: nulls come first, and NaN last."""
    return tuple((0,) if value is None else (2,) if _is_nan(value) else (1, _plain(value)) for value in row)
