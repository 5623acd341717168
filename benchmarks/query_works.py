"""What is asked of every engine by ``benchmarks.queries``: window queries of one feed, and the answer to each, from a
batch query by DuckDB over all the rows at once.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .data import CLOSING_KEY, SPAN_MS, START_MS, folder_of, parts_of, window_table
from .harness import assert_equal

__all__ = ["DELAY_S", "WindowQuery", "check", "expected", "feed", "table", "window_queries"]

DELAY_S = 10
"""How far a feed's low-watermark is behind its latest row."""

_SLIDES_S = (5, 10, 15, 20, 30, 40, 45, 60, 90, 120)
_SLIDES_A_RANGE = range(1, 11)
_FUNCTIONS = ("count", "sum", "avg", "min", "max")
_ARGUMENTS = ("value", "value % 100")


@dataclasses.dataclass(frozen=True)
class WindowQuery:
    """An aggregate per key over a sliding window.

    Attributes
    ----------
    name : str
    range_s, slide_s : int
        How long a window is, and from one window's end to the next one's. The slide divides the range.
    function, argument : str
        The aggregate, in the SQL of all engines.
    """

    name: str
    range_s: int
    slide_s: int
    function: str
    argument: str

    @property
    def end_ms(self) -> int:
        """The end of the last window that the feed closes."""
        slide_ms = self.slide_s * 1000
        return (START_MS + SPAN_MS) // slide_ms * slide_ms

    @property
    def job(self) -> dict[str, object]:
        """The query as JSON, for an engine."""
        return {**dataclasses.asdict(self), "end_ms": self.end_ms}


def window_queries(number: int, seed: int = 1) -> list[WindowQuery]:
    """Return so many different queries, at most 1,000: the first of them in an order that the seed gives."""
    every = [
        (slides * slide, slide, function, argument)
        for slide in _SLIDES_S
        for slides in _SLIDES_A_RANGE
        for function in _FUNCTIONS
        for argument in _ARGUMENTS
    ]
    if number > len(every):
        raise SystemExit(f"there are {len(every)} queries, not {number}")
    random.Random(seed).shuffle(every)
    return [WindowQuery(f"q{place:03}", *each) for place, each in enumerate(every[:number])]


def table(rows: int, keys: int) -> pa.Table:
    """Return the rows ``key, ms, value`` of a feed over 480 s.

    5 % of the times are up to 5 s too early. None is on a full second, so that windows that hold their start and
    windows that hold their end are the same. The last row lets the feed's low-watermark pass the end of the span, and
    no further.
    """
    full = window_table(rows, keys)
    ms = full["ms"].to_numpy().copy()
    ms[ms % 1000 == 0] += 1
    ms[-1] = START_MS + SPAN_MS + DELAY_S * 1000 + 1
    return full.set_column(1, "ms", pa.array(ms))


def feed(rows: int, keys: int, files: int, side_by_side: int | None = None) -> str:
    """Return a folder with :func:`table` in CSV files; create it if it is missing.

    Parameters
    ----------
    rows, keys, files : int
        How many of each. Each file is later than the one before.
    side_by_side : int, optional
        Instead, so many files without headers that are each in the order of time, for those who read that many at once.
    """
    name = f"queries-{rows}-{keys}"
    if side_by_side is None:
        return str(folder_of(f"{name}-{files}-csv", "csv", lambda: parts_of(table(rows, keys), files)))

    def every() -> list[pa.Table]:
        all_rows = table(rows, keys)
        return [all_rows.take(pa.array(np.arange(first, len(all_rows), side_by_side))) for first in range(side_by_side)]

    return str(folder_of(f"{name}-{side_by_side}-bare", "bare", every))


@functools.lru_cache(maxsize=2)
def _answers(rows: int, keys: int, queries: tuple[WindowQuery, ...]) -> dict[str, pa.Table]:
    return {query.name: expected(query, table(rows, keys)) for query in queries}


def expected(query: WindowQuery, rows: pa.Table) -> pa.Table:
    """Return the answer of a query over rows ``key, ms, value``: ``key, v``, by key."""
    import duckdb

    text = f"""
        SELECT key, {query.function}({query.argument})::DOUBLE AS v FROM rows
        WHERE ms >= $low AND ms < $end AND key <> $closing GROUP BY key ORDER BY key
    """
    given = {"low": query.end_ms - query.range_s * 1000, "end": query.end_ms, "closing": CLOSING_KEY}
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.register("rows", rows)
        return connection.sql(text, params=given).to_arrow_table()


def check(engine: str, queries: Sequence[WindowQuery], rows: int, keys: int, results: dict[str, pa.Table]) -> None:
    """Stop unless every query's result is right.

    Parameters
    ----------
    engine : str
    queries : sequence of WindowQuery
    rows, keys : int
        Of the feed.
    results : dict of str to pyarrow.Table
        By query: ``key, v`` of the last window, in any order.

    Raises
    ------
    SystemExit
        Saying where they differ.
    """
    answers = _answers(rows, keys, tuple(queries))
    for query in queries:
        got = results[query.name]
        got = got.filter(pc.not_equal(got["key"], CLOSING_KEY)).select(["key", "v"]).sort_by("key")
        got = got.set_column(1, "v", pc.cast(got["v"], pa.float64()))
        assert_equal(f"{engine}, {query}", got, answers[query.name])
