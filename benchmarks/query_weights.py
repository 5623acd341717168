"""Part *weights* of ``benchmarks.queries``: hosted queries of two weights, fed faster than a batch has time to put out.

A file of the feed comes whenever a batch has ended, and changes the result of every query. After a first run without a
limit, batches are given less time than they take beside results, so that results get the least time that they can get.

All tables are compared with a batch query by DuckDB at the end. Staleness is that of the project: a query is stale from
the arrival of the oldest row that its table lacks until the commit. Its mean over the second run comes from the tables'
logs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from .environments import CACHE
from .harness import assert_equal, cores, engine_command, fresh, progress, run
from .query_works import DELAY_S, feed, table

__all__ = ["Commit", "mean_staleness_s", "weights"]

Commit = tuple[int, int]
"""When the oldest row of a commit came, and when it was made, in microseconds."""


def mean_staleness_s(commits: Sequence[Commit], start_us: int, end_us: int) -> float:
    """Return the mean staleness of a table from one time to another.

    Parameters
    ----------
    commits : sequence of (int, int)
        Of the table, in order; those after `end_us` show what waited then.
    start_us, end_us : int
    """
    from upstream.operators.capacity.staleness import StalenessAccount

    account = StalenessAccount(1, start_us=start_us)
    during = [each for each in commits if start_us <= each[1] <= end_us]
    later = [first for first, at in commits if at > end_us and first < end_us]
    number = np.zeros(len(during), dtype=np.int64)
    account.deliver(number, np.array([each[0] for each in during]), np.array([each[1] for each in during]))
    waiting = np.array(later[:1], dtype=np.int64)
    return account.finish(end_us, np.zeros(len(waiting), dtype=np.int64), waiting).mean


def weights(
    number: int, rows: int, keys: int, files: int
) -> tuple[dict[str, Any], list[tuple[str, float, float, bool]]]:
    """Compare the staleness of queries of weight 4 with that of as many of weight 1.

    Parameters
    ----------
    number : int
        How many queries of each weight.
    rows, keys, files : int
        Of the feed.
    """
    out = fresh(CACHE / "queries", "weights")
    job = {
        "cores": cores(),
        "out": str(out),
        "queries": {f"w{weight}_{each}": weight for each in range(number) for weight in (1, 4)},
        "data": feed(rows, keys, files),
        "delay_s": DELAY_S,
    }
    progress(f"weights: {number} queries of weight 1 and {number} of weight 4")
    found = dict(run(engine_command("queries_weights", job), log="queries-weights").reported)
    _check(out, list(job["queries"]), rows, keys)
    start_us, end_us = found["start_us"], found["end_us"]
    stale = {
        weight: statistics.mean(
            mean_staleness_s(_commits(out / name), start_us, end_us)
            for name, own in job["queries"].items()
            if own == weight
        )
        for weight in (1, 4)
    }
    ratio = stale[4] / stale[1]
    print(f"\n{2 * number} queries, {found['batches']} batches of {found['took_ms']:,.0f} ms (median)")
    print(f"  put out in a batch, of {2 * number} queries: {found['served']:.1f} (median)")
    print(f"  mean staleness, s: weight 1 {stale[1]:.2f}, weight 4 {stale[4]:.2f}; ratio {ratio:.2f}")
    name = "staleness of weight 4, x that of weight 1"
    return {**found, "staleness_s": stale, "ratio": ratio}, [(name, ratio, 0.25, True), (name, ratio, 0.5, False)]


def _check(out: Path, names: Sequence[str], rows: int, keys: int) -> None:
    """Stop unless each table has the newest value of each key, plus the query's number."""
    import duckdb

    from upstream.sink.latest_table import LatestTable

    with duckdb.connect() as connection:
        connection.register("feed", table(rows, keys))
        text = """
            SELECT key, arg_max(value, (ms, place)) AS v
            FROM (SELECT *, row_number() OVER () AS place FROM feed) GROUP BY key ORDER BY key
        """
        newest = connection.sql(text).to_arrow_table()
    for number, name in enumerate(names):
        expected = newest.set_column(1, "v", pc.add(newest["v"], number))
        got = LatestTable(out / name).scan().collect().to_arrow().select(["key", "v"]).sort_by("key")
        assert_equal(f"upstream, {name}", got, expected)


def _commits(place: Path) -> list[Commit]:
    from upstream.sink.latest_table import LatestTable

    found: list[Commit] = []
    for _, summary in LatestTable(place).commits():
        at, stale = summary.committed_at_us, summary.staleness
        if stale is not None:
            found.append((at - round(stale.max * 1e6), at))
    return found
