"""What is asked of every engine by ``benchmarks.windows``, and the answer, from a batch query by DuckDB over all the
rows at once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .data import CLOSING_KEY, window_table
from .harness import assert_equal

__all__ = ["Work", "check", "expected", "holds"]

# Of the approximate answers: what an engine may be off in a number of distinct values, beside two that look alike to
# it, and over all of them. The error that engines promise (5 %) is a standard deviation.
_DISTINCT_ERROR = 0.2
_DISTINCT_DEVIATION = 0.075
_MANY = 1_000


@dataclasses.dataclass(frozen=True)
class Work:
    """A window aggregate per key.

    Attributes
    ----------
    name : str
    range_s, slide_s : int
        How long a window is, and from one window's end to the next one's. The slide divides the range.
    emit : str
        ``all`` results, or the ``latest`` per key.
    aggregates : str
        ``sums`` (count and sum) or ``holistic`` (count, median, and number of distinct values).
    """

    name: str
    range_s: int
    slide_s: int
    emit: str = "all"
    aggregates: str = "sums"

    def __post_init__(self) -> None:
        if self.range_s % self.slide_s:
            raise SystemExit(f"{self.name}: a range of {self.range_s} s is no multiple of the slide, {self.slide_s} s")

    @property
    def key_columns(self) -> list[str]:
        """What tells results apart."""
        return ["key"] if self.emit == "latest" else ["key", "window_end"]

    @property
    def job(self) -> dict[str, Any]:
        """What an engine is told."""
        fields = dataclasses.asdict(self)
        del fields["name"]
        return fields


_LATEST = """
    WITH panes AS (SELECT key, ms // $slide AS pane, value FROM rows WHERE key <> $closing),
    latest AS (SELECT key, max(pane) + $range // $slide - 1 AS id FROM panes GROUP BY key),
    contents AS (
        SELECT key, (id + 1) * $slide AS window_end, value
        FROM panes JOIN latest USING (key) WHERE pane BETWEEN id - $range // $slide + 1 AND id
    )
"""
_ALL = """
    WITH panes AS (SELECT key, ms // $slide AS pane, {of_pane} FROM rows WHERE key <> $closing {per_pane}),
    contents AS (SELECT key, (pane + 1 + later) * $slide AS window_end, * FROM panes, range($range // $slide) _(later))
"""
_SUMS = "count(*) AS n, sum(value)::BIGINT AS total"
_SUMS_OF_PANES = "sum(n)::BIGINT AS n, sum(total)::BIGINT AS total"
_HOLISTIC = """
    count(*) AS n, quantile_disc(value, 0.5) AS lower, -quantile_disc(-value, 0.5) AS upper,
    count(DISTINCT value) AS different
"""


def expected(work: Work, rows: pa.Table) -> pa.Table:
    """Return the answer over rows `key, ms, value`, by key and end of window.

    Returns
    -------
    pyarrow.Table
        ``key, window_end`` (milliseconds) and ``n, total``, or ``n``, the ``lower`` and ``upper`` median and how many
        values are ``different``. The row that closes the windows is in none.
    """
    import duckdb

    # Sums of windows are sums of panes; other answers need the windows' rows. A window's extent is its `range` of time
    # before its end.
    of_panes = work.aggregates == "sums" and work.emit == "all"
    what = _SUMS if work.aggregates == "sums" else _HOLISTIC
    if work.emit == "latest":
        query = _LATEST
    else:
        query = _ALL.format(of_pane=what if of_panes else "value", per_pane="GROUP BY ALL" if of_panes else "")
    query += f"SELECT key, window_end, {_SUMS_OF_PANES if of_panes else what} FROM contents GROUP BY ALL ORDER BY ALL"
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.register("rows", rows)
        given = {"range": work.range_s * 1000, "slide": work.slide_s * 1000, "closing": CLOSING_KEY}
        return connection.sql(query, params=given).to_arrow_table()


@functools.lru_cache(maxsize=4)
def holds(work: Work, rows: int, keys: int) -> pa.Table:
    """Return the answer over the feed of :func:`~benchmarks.data.window_feed`."""
    return expected(work, window_table(rows, keys))


def check(engine: str, work: Work, got: pa.Table, answer: pa.Table) -> None:
    """Stop unless an engine's result is right: exactly, or for approximate aggregates as near as they promise.

    Parameters
    ----------
    engine : str
    work : Work
    got : pyarrow.Table
        ``key, window_end`` and ``n, total``, or ``n, median, different``, in any order.
    answer : pyarrow.Table
        What :func:`expected` gave.

    Raises
    ------
    SystemExit
        Saying where they differ.
    """
    got = got.filter(pc.not_equal(got["key"], CLOSING_KEY)).sort_by([("key", "ascending"), ("window_end", "ascending")])
    exact = [name for name in ("key", "window_end", "n", "total") if name in answer.column_names]
    assert_equal(f"{engine}, {work.name}", got, answer.select(exact))
    if work.aggregates == "sums":
        return
    median, different = pc.cast(got["median"], pa.float64()), pc.cast(got["different"], pa.float64())
    true = pc.cast(answer["different"], pa.float64())
    off = pc.abs(pc.subtract(different, true))
    allowed = pc.add(2.0, pc.multiply(_DISTINCT_ERROR, true))
    wrong = pc.or_(
        pc.or_(pc.less(median, answer["lower"]), pc.greater(median, answer["upper"])), pc.greater(off, allowed)
    )
    first = pc.index(wrong, True).as_py()
    if first >= 0:
        raise SystemExit(
            f"{engine}, {work.name}: {got.slice(first, 1).to_pylist()}, expected {answer.slice(first, 1).to_pylist()}"
        )
    deviation = math.sqrt(pc.mean(pc.power(pc.divide(off, true), 2)).as_py() or 0.0)
    if answer.num_rows >= _MANY and deviation > _DISTINCT_DEVIATION:
        raise SystemExit(
            f"{engine}, {work.name}: distinct counts deviate by {deviation:.3f}, more than {_DISTINCT_DEVIATION}"
        )
