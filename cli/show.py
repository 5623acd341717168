"""``upstream show``: rows of a table, read by Polars without a JVM."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .failures import MISUSED, Failure
from .feeds import feed_lines
from .live import complete_to, how_rows_came
from .status import recent_commits

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FORMATS", "cell", "show"]

FORMATS = ("table", "csv", "json")
_OURS = "_upstream_"


def show(
    path: str,
    *,
    limit: int,
    where: str | None,
    columns: Sequence[str],
    order_by: str | None,
    everything: bool,
    output: str,
    storage: dict[str, str],
) -> None:
    """Print rows of a table.

    A `limit` of 0 prints all rows. `where` and `order_by` are SQL. Without `columns`, all of the user's are printed;
    `everything` adds the package's own. An SQL or column that does not fit raises a Failure.
    """
    import polars as pl

    from ..delta_format.scan import scan_table
    from ..sink.admin.scan import open_table

    table = open_table(path, storage)
    frame = scan_table(table)
    names = frame.collect_schema().names()
    wanted = list(columns) or [name for name in names if everything or not name.startswith(_OURS)]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise Failure(f"The table has no column {', '.join(unknown)}; it has {', '.join(names)}.", MISUSED)
    try:
        matching = frame if where is None else frame.filter(pl.sql_expr(where))
        found = int(matching.select(pl.len()).collect().item())
        if order_by is not None:
            matching = matching.sql(f"SELECT * FROM self ORDER BY {order_by}")  # noqa: S608 the user's own table
        rows = (matching if limit == 0 else matching.head(limit)).select(wanted).collect()
    except pl.exceptions.PolarsError as error:
        raise Failure(f"The table cannot be asked that: {_first_line(error)}", MISUSED) from error
    if output == "csv":
        rows.with_columns(_flat(rows)).write_csv(sys.stdout)
    elif output == "json":
        rows.write_ndjson(sys.stdout.buffer)
    else:
        _print(rows, found, path, table.version(), storage)


def _print(rows: pl.DataFrame, found: int, path: str, version: int, storage: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    # Into a pipe, a column is as wide as it must be.
    console = Console(width=None if sys.stdout.isatty() else 10_000, soft_wrap=not sys.stdout.isatty())
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for name, kind in rows.schema.items():
        grid.add_column(name, justify="right" if kind.is_numeric() else "left", overflow="fold")
    for row in rows.iter_rows():
        grid.add_row(*map(cell, row))
    console.print(grid)
    summaries = [each for _, each in recent_commits(path, version, storage)]
    facts = [f"complete to {complete_to(summaries[-1])}", *how_rows_came(summaries[-1])] if summaries else []
    console.print(", ".join([f"{len(rows):,} of {found:,} rows; version {version}", *facts]), style="dim")
    for line in feed_lines(summaries):
        console.print(line, style="dim", highlight=False)


def cell(value: Any) -> str:
    """Return a value as text; empty for null."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, (list, dict)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


def _flat(rows: pl.DataFrame) -> list[pl.Expr]:
    """Replace lists and structs by JSON text, because CSV has neither."""
    import polars as pl

    return [
        pl.col(name).map_elements(cell, return_dtype=pl.String)
        for name, kind in rows.schema.items()
        if kind.is_nested()
    ]


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
