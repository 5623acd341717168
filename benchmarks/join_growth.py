"""How a join by time grows, without Spark: with rows, with keys that a batch does not touch, with hot keys, with what
it keeps. Parts of ``benchmarks.joins``.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from .data import join_table
from .harness import cores, progress
from .join_shards import Cost, JoinShards
from .join_works import check, joined, pair_codes
from .shapes import pyplot

__all__ = ["KEPT_ABOVE_LAW", "hot_keys", "memory", "plot_growth", "scaling"]

_REACH_MS = 60_000
_DELAY_MS = 10_000
_SHARDS = 16
_BATCH_ROWS = 250_000
_TIMES = 3
_PAGE_ROWS = 2048
KEPT_ABOVE_LAW = 0.05
"""The part by which rows kept may differ from the law, beyond the part of time that goes as a whole."""


def hot_keys(rows: int, keys: int) -> dict[str, Any]:
    """Compare uniform keys with one key that has half of all rows, at about as many pairs.

    Rows of the hot key lie so close in time that a reach of a minute would pair each with thousands; so its reach is
    shorter, and each of its rows meets two of the other side.
    """
    found: dict[str, Any] = {}
    for name, reach_ms in (("uniform", _REACH_MS), ("hot", max(1, 4 * _REACH_MS // keys))):
        progress(f"{name} keys")
        sides = [_with_hot_key(join_table(rows, keys, side), side) if name == "hot" else join_table(rows, keys, side)
                 for side in (0, 1)]  # fmt: skip
        shards, cost = _through(sides, reach_ms, _BATCH_ROWS)
        pairs = _checked(f"{name} keys", shards, sides, reach_ms)
        found[name] = {
            "pairs": pairs,
            "processor_s": round(cost.total_s, 3),
            "elapsed_s": round(cost.elapsed_s(cores()), 3),
        }
    uniform, hot = found["uniform"], found["hot"]
    found["ratio"] = round(hot["processor_s"] / uniform["processor_s"], 2)
    found["elapsed_ratio"] = round(hot["elapsed_s"] / uniform["elapsed_s"], 2)
    print(f"\n{rows:,} rows a side, {keys:,} keys, without Spark")
    print(f"  {'keys':34} {'pairs':>11} {'processor s':>12} {f'least s, {cores()} cores':>18}")
    for name, text in (("uniform", "uniform"), ("hot", "one key has half of all rows")):
        each = found[name]
        print(f"  {text:34} {each['pairs']:>11,} {each['processor_s']:>12.2f} {each['elapsed_s']:>18.2f}")
    return found


def scaling(rows: int, keys: int) -> dict[str, Any]:
    """Measure the cost of more rows, in batches of one size, and of small batches beside more keys that are kept."""
    by_rows: list[tuple[int, float]] = []
    for part in (8, 4, 2, 1):
        progress(f"{rows // part:,} rows a side")
        sides = [join_table(rows // part, max(keys // part, 1), side) for side in (0, 1)]
        shards, cost = _through(sides, _REACH_MS, _BATCH_ROWS)
        _checked(f"{rows // part:,} rows", shards, sides, _REACH_MS)
        by_rows.append((2 * sides[0].num_rows, round(cost.total_s, 4)))
    by_kept: list[tuple[int, float, int]] = []
    for kept in (rows // 64, rows // 16, rows // 4, rows):
        progress(f"{kept:,} other keys kept")
        by_kept.append(_beside_others(kept, rows // 500))
    print("\nwithout Spark, processor time")
    for size, seconds in by_rows:
        print(f"  {size:>11,} rows of both sides {seconds:>9.3f} s")
    for size, seconds, read in by_kept:
        print(
            f"  {size:>11,} rows kept of keys that a batch does not touch {1e3 * seconds:>9.1f} ms a batch, "
            f"{read / 1e6:.1f} MB of state read"
        )
    return {"by_rows": by_rows, "by_kept": by_kept}


def memory(rows: int, keys: int) -> dict[str, Any]:
    """Compare the rows kept with the law, λ_L (F + lag_R) + λ_R (P + lag_L).

    Raises
    ------
    SystemExit
        They differ by more than the law allows. Rows go in whole parts of time, of a quarter of the interval each, or
        in pages of so many rows that a state store takes at once: up to one part and one page more are kept of each
        side. There is one shard, so that pages weigh little.
    """
    sides = [join_table(rows, keys, side) for side in (0, 1)]
    per_ms = rows / (int(sides[0].column("ms").to_numpy().max()) - int(sides[0].column("ms").to_numpy().min()))
    found: list[dict[str, Any]] = []
    print(f"\n{rows:,} rows a side, {1000 * per_ms:,.0f} a second of each: rows kept, without Spark")
    print(
        f"  {'reach s':>8} {'lag s':>7} {'by the law':>11} {'kept':>9} {'at most':>9} {'state MB':>9} {'bytes/row':>12}"
    )
    for reach_ms, delay_ms in ((15_000, 10_000), (60_000, 10_000), (60_000, 120_000), (240_000, 10_000)):
        shards, _ = _through(sides, reach_ms, max(rows // 16, 1), delay_ms, shards=1)
        law = 2 * per_ms * (reach_ms + delay_ms)
        most = law + 2 * per_ms * ((2 * reach_ms + 1) // 4) + 2 * _PAGE_ROWS
        each = {
            "reach_ms": reach_ms,
            "lag_ms": delay_ms,
            "law": round(law),
            "kept": shards.kept,
            "most": round(most),
            "state_bytes": shards.state_bytes,
        }
        found.append(each)
        print(
            f"  {reach_ms / 1e3:>8.0f} {delay_ms / 1e3:>7.0f} {law:>11,.0f} {shards.kept:>9,} {most:>9,.0f} "
            f"{shards.state_bytes / 1e6:>9.2f} {shards.state_bytes / max(shards.kept, 1):>12.0f}"
        )
        if not law * (1 - KEPT_ABOVE_LAW) <= shards.kept <= most * (1 + KEPT_ABOVE_LAW):
            raise SystemExit(f"{shards.kept:,} rows are kept, and by the law it is from {law:,.0f} to {most:,.0f}")
    return {"kept": found}


def plot_growth(found: dict[str, Any], path: Path) -> None:
    """Plot what :func:`scaling` found, with the straight line through the largest number of rows."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    rows, seconds = zip(*found["by_rows"], strict=True)
    left.plot([0, rows[-1] / 1e6], [0, seconds[-1]], color="0.75", linestyle="--", label="proportional to rows")
    left.plot([each / 1e6 for each in rows], seconds, marker="o", label="measured")
    left.legend(frameon=False)
    left.set(xlabel="million rows of both sides", ylabel="seconds", title="As rows grow", xlim=(0, None))
    kept, batch, _ = zip(*found["by_kept"], strict=True)
    right.plot(kept, [1e3 * each for each in batch], marker="o")
    right.set(xlabel="rows kept of other keys", ylabel="milliseconds a batch", title="As more is kept", xscale="log")
    for axes in (left, right):
        axes.set_ylim(0, None)
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"plotted: {path}")


def _through(
    sides: list[pa.Table], reach_ms: int, batch_rows: int, delay_ms: int = _DELAY_MS, shards: int = _SHARDS
) -> tuple[JoinShards, Cost]:
    join = JoinShards(reach_ms, delay_ms, shards)
    cost = Cost(0.0, [0.0] * shards)
    for first in range(0, sides[0].num_rows, batch_rows):
        cost = cost.plus(join.run(*(side.slice(first, batch_rows) for side in sides)))
    return join, cost


def _checked(name: str, shards: JoinShards, sides: list[pa.Table], reach_ms: int) -> int:
    """Stop unless the pairs are those of a batch join; return their number."""
    rows = sides[0].num_rows
    got, answer = (
        pair_codes(each.column("id").to_numpy(), each.column("id_right").to_numpy(), rows)
        for each in (shards.pairs(), joined(sides[0], sides[1], reach_ms))
    )
    check(name, got, answer)
    return len(answer)


def _with_hot_key(table: pa.Table, side: int) -> pa.Table:
    hot = np.random.default_rng(side).random(table.num_rows) < 0.5
    return table.set_column(0, "key", pa.array(np.where(hot, 0, table.column("key").to_numpy())))


def _beside_others(kept: int, updates: int) -> tuple[int, float, int]:
    """Return how many rows of other keys are kept, and the seconds and the bytes read of a small batch beside them."""
    shards = JoinShards(_REACH_MS, _DELAY_MS, _SHARDS)
    rng = np.random.default_rng(1)
    base_ms = 1_700_000_000_000

    def rows(first: int, count: int, low: int, high: int) -> pa.Table:
        # All of one minute, so that none leaves.
        keys, ms = np.arange(first, first + count), base_ms + rng.integers(low, high, count)
        return pa.table({"key": keys, "ms": ms, "id": keys, "value": keys})

    shards.run(rows(0, kept, 0, _REACH_MS // 2), rows(0, kept, 0, _REACH_MS // 2))
    times: list[float] = []
    for number in range(_TIMES):
        first = kept + number * updates
        low = _REACH_MS // 2 + number * 100
        times.append(shards.run(rows(first, updates, low, low + 100), rows(first, updates, low, low + 100)).total_s)
    return 2 * kept, round(statistics.median(times), 4), shards.read_bytes
