"""How old the rows of SQL views are when more arrives than can be sent: beside the fluent table of the same run.

``python -m benchmarks.sql_overload``: a synthetic feed of 20,000 keys in real time. The ages of the rows of one table
are seen from outside: the mean over keys of now less the time of the key's row. Ratios are to the table of
``us.read(coalesce=True).write``; those of views with a function of 0.5 ms a row, to the fluent queue at the same load.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from .environments import CACHE
from .harness import arguments, engine_command, fresh, introduce, machine, run
from .outside import ages
from .overload import KEYS, WARM_S, capacity_of, verdict
from .shapes import pyplot

RATES = (300_000, 1_500_000)
LOADS = (5, 10)
FLUENT = "fluent"


@dataclasses.dataclass(frozen=True)
class Views:
    """The views of a job, without those of the fluent API."""

    latest: int = 0  # views of the newest rows; 0 for the fluent API
    window: bool = False  # beside them a windowed aggregate per key
    queued: bool = False  # with an expensive function behind a queue
    most: float = 1.0  # the aim: times the fluent table's mean age

    def sql(self, feed: dict[str, str]) -> str | None:
        """Return the job's text; None for the fluent API."""
        if not self.latest:
            return None
        options = {"connector": "synthetic", "key": "key", "event_time": "time", **feed}
        made = [f"CREATE SOURCE s WITH ({', '.join(f'{name} = {value!r}' for name, value in options.items())})"]
        if self.queued:
            made.append("CREATE FUNCTION score(v DOUBLE) RETURNS DOUBLE AS 'benchmarks.engines.sql_overload:score'")
        having, value = (" WITH (queue = 'in-place')", "score(value)") if self.queued else ("", "value")
        for number in range(self.latest):
            select = f"SELECT key, time, {value} + {number} AS v FROM LATEST(s)"
            made.append(f"CREATE MATERIALIZED VIEW l{number}{having} AS {select}")
        if self.window:
            select = "SELECT key, COUNT(*) AS n, AVG(value) AS a FROM s [RANGE 10 SECONDS] GROUP BY key"
            made.append(f"CREATE MATERIALIZED VIEW w AS {select}")
        return ";\n".join(made) + ";"


BY_RATE = {
    FLUENT: Views(),
    "one view": Views(1, most=1.3),
    "one, and a window": Views(1, window=True, most=1.3),
    "5, and a window": Views(5, window=True, most=1.3),
    "20, and a window": Views(20, window=True, most=1.5),
}
BY_LOAD = {f"{FLUENT} queue": Views(queued=True), "view with a queue": Views(1, queued=True, most=1.1)}


def measure(name: str, views: Views, rate: float, seconds: float) -> dict[str, Any]:
    """Run once; return the ages, or why the package refuses the job."""
    home = fresh(CACHE / "sql_overload", name.replace(" ", "-").replace(",", ""))
    home.mkdir()
    feed = {"rowsPerSecond": f"{rate:.0f}", "keys": str(KEYS), "numFeeds": "2", "seed": "7"}
    places = {"to": str(home / "lake"), "checkpoint": str(home / "checkpoint")}
    job = {"sql": views.sql(feed), "feed": feed, "queued": views.queued, "seconds": WARM_S + seconds + 5, **places}
    done = run(engine_command("sql_overload", job), log="sql-overload")
    if "refused" in done.reported:
        return dict(done.reported)
    found = ages(home / "lake" / "l0", home / "checkpoint", WARM_S, WARM_S + seconds)
    return {**dataclasses.asdict(found), "peak_mb": round(done.peak_mb)}


def measured(given: Any) -> list[dict[str, Any]]:
    """Run every view at every rate, then those with a queue at every load; print a line for each."""
    seconds = given.seconds or (25.0 if given.quick else 60.0)
    points = [(f"{rate:,} rows/s", float(rate), BY_RATE) for rate in given.rates or RATES[given.quick :]]
    if not given.quick and not given.rates:
        capacity = capacity_of(given.capacity)
        points += [(f"load {load}", load * capacity, BY_LOAD) for load in LOADS]
    rows: list[dict[str, Any]] = []
    for point, rate, works in points:
        print(f"\n{point}, {KEYS:,} keys, {seconds:g} s seen after {WARM_S:g} s")
        print("  views                 mean s   x fluent  1st half  2nd half    max s  commits  peak MB")
        for name, views in works.items():
            for _ in range(given.runs or 1):
                found = measure(name, views, rate, seconds)
                row = {"work": "sql overload", "point": point, "views": name, "seconds": seconds, **found}
                rows.append(row)
                line(row, rows)
                if given.json:  # each run takes minutes: none is lost if a later one fails
                    given.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    return rows


def ratio(row: dict[str, Any], rows: list[dict[str, Any]]) -> float:
    """Return the mean age divided by that of the fluent table at the same point."""
    fluent = [each["mean"] for each in rows if each["point"] == row["point"] and each["views"].startswith(FLUENT)]
    return row["mean"] * len(fluent) / sum(fluent)


def line(row: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Print one run."""
    if "refused" in row:
        print(f"  {row['views']:<20} not supported: {row['refused'].splitlines()[0]}", flush=True)
        return
    print(
        f"  {row['views']:<20} {row['mean']:7.2f} {ratio(row, rows):10.2f} {row['halves'][0]:9.2f}"
        f" {row['halves'][1]:9.2f} {row['max']:8.2f} {row['commits']:8} {row['peak_mb']:8}",
        flush=True,
    )


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot the mean age of each view's table, a group of labelled bars for each rate or load."""
    rows = [row for row in rows if "mean" in row]
    points = list(dict.fromkeys(row["point"] for row in rows))
    figure, axes = pyplot().subplots(1, len(points), figsize=(4 * len(points), 3), layout="constrained", squeeze=False)
    for each, point in zip(axes[0], points, strict=True):
        bars = [row for row in rows if row["point"] == point]
        drawn = each.barh([row["views"] for row in bars], [row["mean"] for row in bars], color="C2")
        each.bar_label(drawn, labels=[f"{row['mean']:.3g}" for row in bars], padding=2, fontsize="small")
        each.set(title=point, xlabel="mean age, s")
        each.invert_yaxis()
        each.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150, metadata={"Date": None})
    print(f"plotted: {path}")


def main() -> None:
    """Run, print the tables and the aims, draw the plot, write JSON."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--seconds", type=float, help="look at each run for this long [default: 60, with --quick 25]")
    parser.add_argument("--rates", type=int, nargs="+", help="run only these rows per second, and no load")
    parser.add_argument("--capacity", type=float, help="take the function's rows/s from an earlier run")
    parser.add_argument("--seen", type=Path, metavar="JSON", help="run nothing, and read the JSON of a run")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the mean ages")
    given = parser.parse_args()
    if given.seen:
        rows = json.loads(given.seen.read_text())["rows"]
        for row in rows:
            line(row, rows)
    else:
        introduce()
        rows = measured(given)
    if given.plot:
        plot(rows, given.plot)
    print("\naims: mean age, x the fluent table's")
    for row in rows:
        if "mean" in row and not row["views"].startswith(FLUENT):
            verdict(f"{row['point']}, {row['views']}", ratio(row, rows), {**BY_RATE, **BY_LOAD}[row["views"]].most)


if __name__ == "__main__":
    main()
