"""How stale the answers are when more arrives than can be processed: this project beside what people do today.

``python -m benchmarks.overload``: an expensive map (0.5 ms of processor time a row), 20,000 keys, real time, into a
Delta table. Every engine gets the same feed; staleness is measured from outside, by reading the table's commits.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from .environments import CACHE
from .harness import arguments, cores, engine_command, machine, run
from .outside import Seen, began_us, seen
from .shapes import pyplot

ENGINES = ("append", "deduplicate", "fifo", "in-place", "linecutting", "auto", "shed")
LABELS = {"append": "every row", "deduplicate": "foreachBatch", "in-place": "UpStream"}
COST_S = 0.0005
KEYS = 20_000
# A query's first commit takes some seconds; the look at the table begins after it.
WARM_S = 30.0


@dataclasses.dataclass(frozen=True)
class Setting:
    """One point of the experiment."""

    load: float
    skew: float
    two_class: bool = False
    """Instead of the skew: every tenth key has ten times the rate of the others, and rows arrive in bursts."""


def settings(quick: bool) -> list[Setting]:
    """Return the loads at skew 0.5, and two other skews at load 5."""
    if quick:
        return [Setting(5, 0.5)]
    return [*(Setting(load, 0.5) for load in (1, 2, 5, 10)), Setting(5, 0.0), Setting(5, 0.99)]


def job_command(job: dict[str, Any]) -> list[str]:
    """Return the command that runs an engine's job."""
    return engine_command("overload_spark", job)


def feed_of(setting: Setting, capacity: float) -> dict[str, str]:
    """Return the source's options: the same rows for every engine."""
    if setting.two_class:
        rates = np.where(np.arange(KEYS) % 10 == 0, 10.0, 1.0)
        rates *= setting.load * capacity / rates.sum()
        return {"seed": "1", "rates": ",".join(f"{rate:.4f}" for rate in rates), "arrivals": "bursty"}
    return {
        "seed": "1",
        "rowsPerSecond": f"{setting.load * capacity:.0f}",
        "keys": str(KEYS),
        "skew": str(setting.skew),
        "arrivals": "poisson",
    }


def job_of(engine: str, setting: Setting, capacity: float, home: Path, seconds: float) -> dict[str, Any]:
    """Return the job of an engine, with the folder for its files."""
    return {
        "engine": engine,
        "setting": dataclasses.asdict(setting),
        "cores": cores(),
        "cost": COST_S,
        "capacity": capacity,
        "seconds": seconds,
        "table": str(home / "table"),
        "checkpoint": str(home / "checkpoint"),
    }


def capacity_of(given: float | None) -> float:
    """Return the rows per second of the map alone, measured unless given."""
    if given is not None:
        return given
    capacity = run(
        job_command({"engine": "capacity", "cores": cores(), "cost": COST_S}), log="overload-capacity"
    ).reported
    return float(capacity["rows_per_second"])


def own_bounds(table: Path, checkpoint: Path, seconds: float) -> tuple[float, float] | None:
    """Return the bounds of the mean by the table's own commits, or None if they lack it."""
    from upstream.sink.figures.summary import read_summaries, run_figures

    began = began_us(checkpoint)
    summaries = [each for _, each in read_summaries(str(table))]
    looked_at = [each for each in summaries if WARM_S <= (each.committed_at_us - began) / 1e6 < WARM_S + seconds]
    figures = run_figures(looked_at)
    return None if figures is None else figures.over_time


def measure(
    engine: str, setting: Setting, capacity: float, seconds: float
) -> tuple[Seen, tuple[float, float] | None, float]:
    """Run once; return what a reader saw, the figures of the commits, and the peak of memory."""
    feed = "two-class" if setting.two_class else f"{setting.skew:g}"
    home = CACHE / "overload" / f"{engine}-{setting.load:g}-{feed}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    done = run(job_command(job_of(engine, setting, capacity, home, WARM_S + seconds + 5)), log=f"overload-{engine}")
    table, checkpoint = home / "table", home / "checkpoint"
    looked_at = seen(table, checkpoint, feed_of(setting, capacity), WARM_S, WARM_S + seconds)
    return looked_at, own_bounds(table, checkpoint, seconds), done.peak_mb


def main() -> None:
    """Run, print the table, draw the plot, write JSON."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--seconds", type=float, help="measure each run for this long [default: 120, with --quick 25]")
    parser.add_argument("--engines", default=",".join(ENGINES), help="run only these, separated by commas")
    parser.add_argument("--loads", help="run only these loads at skew 0.5, separated by commas")
    parser.add_argument("--skews", help="run only these skews at load 5, separated by commas")
    parser.add_argument("--two-class", help="run only these loads, of keys with two rates, in bursts")
    parser.add_argument("--capacity", type=float, help="take the map's rows/s from an earlier run, to continue it")
    parser.add_argument(
        "--seen", type=Path, nargs="+", metavar="JSON", help="run nothing, and read the JSON of these runs"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw mean staleness over load")
    given = parser.parse_args()
    if given.seen:
        rows = [row for path in given.seen for row in json.loads(path.read_text())["rows"]]
        for point in dict.fromkeys(map(point_of, rows)):
            heading(*point[:3], two_class=point[3])
            for row in rows:
                if point_of(row) == point:
                    line(row)
    else:
        rows = measured(given)
    if given.plot:
        plot(rows, given.plot)
    aims(rows)


def point_of(row: dict[str, Any]) -> tuple[float, float, float, bool]:
    """Return what a run shares with those that it is compared with."""
    return row["load"], row["skew"], row["seconds"], row.get("two_class", False)


def measured(given: Any) -> list[dict[str, Any]]:
    """Run what was asked for."""
    seconds = given.seconds or (25.0 if given.quick else 120.0)
    engines = given.engines.split(",")
    if given.quick and given.engines == ",".join(ENGINES):
        engines = ["append", "deduplicate", "in-place"]
    points = settings(given.quick)
    if given.loads or given.skews or given.two_class:
        points = [Setting(float(load), 0.5) for load in (given.loads or "").split(",") if load]
        points += [Setting(5, float(skew)) for skew in (given.skews or "").split(",") if skew]
        points += [Setting(float(load), 0.5, two_class=True) for load in (given.two_class or "").split(",") if load]
    about = machine()
    print(json.dumps(about))
    capacity = capacity_of(given.capacity)
    print(f"capacity: the map alone does {capacity:,.0f} rows/s on {cores()} cores", flush=True)
    rows: list[dict[str, Any]] = []
    for point in points:
        heading(point.load, point.skew, seconds, two_class=point.two_class)
        for engine in engines * (given.runs or 1):
            result, own, peak = measure(engine, point, capacity, seconds)
            rows.append(
                {"work": "overload", "engine": engine, **dataclasses.asdict(point), **dataclasses.asdict(result)}
                | {"peak_mb": round(peak), "capacity": capacity, "seconds": seconds, "own": own}
            )
            line(rows[-1])
            if given.json:  # each run takes minutes: none is lost if a later one fails
                given.json.write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
    return rows


def heading(load: float, skew: float, seconds: float, *, two_class: bool = False) -> None:
    """Print the heading of the following lines."""
    feed = "two rates, in bursts" if two_class else f"skew {skew:g}"
    print(f"\nload {load:g} x, {feed}, {seconds:g} s looked at after {WARM_S:g} s")
    print("  engine         mean s    p99 s    max s  peak MB    p50 s  results/s  commits   mean by own commits")


def line(row: dict[str, Any]) -> None:
    """Print one run."""
    print(
        f"  {row['engine']:<12} {row['mean']:8.2f} {row['p99']:8.2f} {row['max']:8.2f} {row['peak_mb']:8.0f}"
        f" {row.get('p50', nan):8.2f} {row.get('results_per_second', nan):10.0f} {row.get('commits', nan):8.0f}"
        + ("" if row.get("own") is None else "   {:.2f} to {:.2f}".format(*row["own"])),
        flush=True,
    )


def aims(rows: list[dict[str, Any]]) -> None:
    """Print which aims are met, by UpStream's best policy."""
    means = {(row["engine"], row["load"]): row["mean"] for row in rows if point_of(row)[1::2] == (0.5, False)}
    ours = {engine: means[engine, 5] for engine in ENGINES[2:6] if (engine, 5) in means}
    if not ours:
        return
    best = min(ours, key=lambda engine: ours[engine])
    print(f"\naims, by {best}, at skew 0.5")
    for name, most in (("deduplicate", 1 / 2), ("append", 1 / 20)):
        if (name, 5) in means:
            verdict(f"mean staleness at load 5 / that of {name}", ours[best] / means[name, 5], most)
    flat = [means[best, load] for load in (2, 5, 10) if (best, load) in means]
    if len(flat) > 1:
        verdict("largest / least mean staleness from load 2 to 10", max(flat) / min(flat), 1.25)


def verdict(what: str, ratio: float, most: float) -> None:
    """Print one line for one aim."""
    print(f"  {'met   ' if ratio <= most else 'MISSED'} {what}: {ratio:.3f} (aim: ≤ {most:g})")


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot mean staleness at each load, a labelled bar an engine.

    An engine that processes every row falls behind for as long as it runs, so its label has the time of its run.
    """
    rows = [row for row in rows if row["engine"] in LABELS and point_of(row)[1::2] == (0.5, False)]
    loads = sorted({row["load"] for row in rows})
    figure, axes = pyplot().subplots(figsize=(9, 3.8), layout="constrained")
    for number, (engine, label) in enumerate(LABELS.items()):
        bars = [row for row in rows if row["engine"] == engine]
        drawn = axes.bar(
            [loads.index(row["load"]) + (number - 1) * 0.3 for row in bars],
            [row["mean"] for row in bars],
            width=0.28,
            color=f"C{number}",
            label=label,
        )
        axes.bar_label(drawn, labels=[bar_label(row) for row in bars], padding=2, fontsize="small")
    axes.set(ylabel="mean staleness, s", xlabel="load (arrivals / capacity)")
    axes.set_xticks(range(len(loads)), [f"{load:g}" for load in loads])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=150, metadata={"Date": None})
    print(f"plotted: {path}")


def bar_label(row: dict[str, Any]) -> str:
    """Return the mean of a run, and how long the run took where the mean climbs with it."""
    climbs = f"\n(after {WARM_S + row['seconds']:g} s, climbing)" if row["engine"] == "append" else ""
    return f"{row['mean']:.3g}{climbs}"


if __name__ == "__main__":
    main()
