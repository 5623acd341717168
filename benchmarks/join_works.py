"""The work of ``benchmarks.joins``, and its answer, from a batch join by DuckDB over all the rows at once."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .data import join_feed, join_table

__all__ = ["JoinWork", "check", "expected", "missing", "pair_codes"]

Int64s = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class JoinWork:
    """An inner join of two feeds of one size.

    Attributes
    ----------
    rows, keys : int
        Rows of each side, and keys of both.
    files : int
        Files of each side.
    files_per_batch : int
        How many of them a batch reads, of each side.
    delay_s : int
        How far the watermark is behind the newest row.
    late : float
        The part of the rows that come five minutes late.
    reach_s : int
        How far apart two rows are that meet, at most.
    apart : bool
        Whether the late rows come in files of their own, an input partition that runs behind.
    """

    rows: int
    keys: int
    files: int = 8
    files_per_batch: int = 2
    delay_s: int = 10
    late: float = 0.0
    reach_s: int = 60
    apart: bool = False

    def job(self, in_turn: int | None = None) -> dict[str, Any]:
        """Return what an engine gets; `in_turn` is the number of files of an engine that reads all of them at once."""
        left, right = (
            join_feed(
                self.rows,
                self.keys,
                side,
                in_turn or self.files,
                self.late,
                in_turn=in_turn is not None,
                apart=self.apart,
            )
            for side in (0, 1)
        )
        fields = {name: getattr(self, name) for name in ("files_per_batch", "delay_s", "reach_s", "apart")}
        return {**fields, "left": str(left), "right": str(right)}


def pair_codes(left: Int64s, right: Int64s, rows: int) -> Int64s:
    """Return one number for each pair of row ids, sorted."""
    return np.sort(left * rows + right)


def expected(work: JoinWork) -> Int64s:
    """Return the pairs of a work, as :func:`pair_codes`."""
    return _batch_join(work.rows, work.keys, work.late, work.reach_s)


def joined(left: pa.Table, right: pa.Table, reach_ms: int) -> pa.Table:
    """Return the ids of the pairs of a batch join, ``id`` and ``id_right``."""
    import duckdb

    query = """
        SELECT one.id, two.id AS id_right FROM one JOIN two ON one.key = two.key
        AND two.ms BETWEEN one.ms - $reach AND one.ms + $reach
    """
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.register("one", left)
        connection.register("two", right)
        return connection.sql(query, params={"reach": reach_ms}).to_arrow_table()


def check(engine: str, got: Int64s, answer: Int64s) -> None:
    """Stop unless an engine's pairs are exactly those of the answer, each once.

    Raises
    ------
    SystemExit
        Saying how many are missing, and how many are too many.
    """
    if np.array_equal(got, answer):
        return
    lost, extra = missing(got, answer)
    raise SystemExit(f"{engine}: {len(got):,} pairs, expected {len(answer):,}: {lost:,} missing, {extra:,} too many")


def missing(got: Int64s, answer: Int64s) -> tuple[int, int]:
    """Return how many pairs of the answer are missing, and how many others there are, repeated ones included."""
    there = len(np.intersect1d(got, answer))
    return len(answer) - there, len(got) - there


@functools.lru_cache(maxsize=4)
def _batch_join(rows: int, keys: int, late: float, reach_s: int) -> Int64s:
    pairs = joined(join_table(rows, keys, 0, late), join_table(rows, keys, 1, late), reach_s * 1000)
    return pair_codes(pairs["id"].to_numpy(), pairs["id_right"].to_numpy(), rows)
