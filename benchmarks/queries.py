"""Continuous queries that one streaming query hosts: ``python -m benchmarks.queries``.

The queries are sliding windows per key over one feed, all different: ranges of 5 s to 20 min, slides of 5 s to 2 min,
five aggregates of two arguments. Their results are compared with those of a batch query by DuckDB; one that differs
stops the benchmark.

- *alone*: one query, hosted and by the fluent API: the time of a batch.
- *many*: 1, 100 and 1,000 hosted queries: the time of a batch, and the size of the checkpoint.
- *peers*: the same queries by one host, by a streaming query each on Spark, and by Flink's statement set: processor
  time, from the start of the queries to their end, in a process that has done a smaller work of its kind before.
- *register*: seconds until a new query has its first result while others run; parse and plan of one query.
- *groups*: the bytes of state that a change of one row reads for the median of a large group, and for its list.
- *weights*: the staleness of queries of weight 4 and of weight 1, where a batch has no time for the results of all.

Works of a part share a process. The median of a work's batches leaves out the first one.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from .environments import CACHE
from .harness import (
    Run,
    arguments,
    cores,
    engine_command,
    fresh,
    introduce,
    labelled,
    machine,
    progress,
    run,
    say_whether_met,
)
from .query_weights import weights
from .query_works import DELAY_S, WindowQuery, check, feed, window_queries

__all__ = ["main"]

US, SPARK, FLINK = "upstream", "spark", "flink"
PARTS = ("alone", "many", "peers", "register", "groups", "weights")
_OUT = CACHE / "queries"

Aim = tuple[str, float | None, float, bool]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes
    ----------
    rows, keys, files : int
        Of the feed; each file is a batch of ours and of Spark's.
    peer_rows, peer_keys, peer_files : int
        Of the feed that peers read.
    many : sequence of int
        How many queries are hosted.
    peers : mapping
        How many queries each engine is given, ours among them.
    registered : int
        How many queries run while one more is registered.
    runs : int
        How often each is run.
    weights : (int, int, int, int)
        How many queries there are of each weight; rows, keys and files of their feed.
    """

    rows: int
    keys: int
    files: int
    peer_rows: int
    peer_keys: int
    peer_files: int
    many: Sequence[int]
    peers: Mapping[str, int]
    registered: int
    runs: int
    weights: tuple[int, int, int, int]


FULL = Sizes(
    1_600_000,
    1_000,
    8,
    400_000,
    1_000,
    4,
    (1, 100, 1_000),
    {US: 100, SPARK: 100, FLINK: 100},
    1_000,
    1,
    (40, 300_000, 5_000, 60),
)
QUICK = Sizes(80_000, 100, 4, 20_000, 100, 2, (1, 10), {US: 10, SPARK: 5, FLINK: 5}, 10, 1, (20, 100_000, 5_000, 20))
AIMS = {100: 2.0, 1_000: 10.0}


def table_result(path: Path) -> pa.Table:
    """Return a result in UpStream's Delta table."""
    from deltalake import DeltaTable

    return DeltaTable(str(path)).to_pyarrow_table()


def parquet_result(path: Path) -> pa.Table:
    """Return a result in Spark's files."""
    import pyarrow.parquet as pq

    return pa.concat_tables([pq.read_table(file) for file in sorted(path.glob("*.parquet"))])


def csv_result(path: Path) -> pa.Table:
    """Return the result of Flink's sink."""
    import pyarrow.csv as pacsv

    tables = [pacsv.read_csv(file) for file in sorted(path.glob("*.csv"))]
    return pa.concat_tables([table for table in tables if table.num_rows], promote_options="permissive")


@dataclasses.dataclass(frozen=True)
class Work:
    """Queries over a feed.

    Attributes
    ----------
    queries : sequence of WindowQuery
    rows, keys, files : int
        Of the feed.
    fluent : bool
        By the fluent API, not hosted.
    """

    queries: Sequence[WindowQuery]
    rows: int
    keys: int
    files: int
    fluent: bool = False


@dataclasses.dataclass(frozen=True)
class Engine:
    """An engine, and how its results are read.

    Attributes
    ----------
    script : str
        A module below ``benchmarks.engines``.
    side_by_side : int or None
        How many files it reads at once, if it needs files for that.
    result : callable
        From the folder of a query's result to ``key, v``.
    """

    script: str
    side_by_side: int | None
    result: Callable[[Path], pa.Table]

    def measure(self, name: str, works: Sequence[Work], label: str) -> tuple[Run, list[dict[str, Any]]]:
        """Do works one after the other in one process, and check all results."""
        outs = [fresh(_OUT, f"{label}-{number}") for number in range(len(works))]
        jobs = [
            {
                "queries": [query.job for query in work.queries],
                "data": feed(work.rows, work.keys, work.files, self.side_by_side),
                "out": str(out),
                "files_per_batch": 1,
                "delay_s": DELAY_S,
                "fluent": work.fluent,
            }
            for work, out in zip(works, outs, strict=True)
        ]
        once = run(engine_command(self.script, {"cores": cores(), "work": jobs}), log=f"queries-{label}")
        for work, out in zip(works, outs, strict=True):
            results = {query.name: self.result(out / query.name) for query in work.queries}
            check(name, work.queries, work.rows, work.keys, results)
        return once, once.reported["works"]


ENGINES = {
    US: Engine("queries_upstream", None, table_result),
    SPARK: Engine("queries_spark", None, parquet_result),
    FLINK: Engine("queries_flink", cores(), csv_result),
}


def batch_ms(work: Mapping[str, Any]) -> float:
    """Return the median duration of a work's batches but the first."""
    return statistics.median(work["batches_ms"][1:] or work["batches_ms"])


def alone(sizes: Sizes) -> tuple[dict[str, Any], list[Aim]]:
    """Compare one hosted query with the same by the fluent API."""
    query = next(each for each in window_queries(1_000) if (each.function, each.argument) == ("sum", "value"))
    hosted = Work([query], sizes.rows, sizes.keys, sizes.files)
    fluent = dataclasses.replace(hosted, fluent=True)
    found: dict[str, list[float]] = {"hosted": [], "fluent": []}
    for number in range(sizes.runs):
        progress(f"alone, run {number + 1} of {sizes.runs}")
        _, works = ENGINES[US].measure(US, [fluent, hosted, fluent, hosted], "alone")
        found["fluent"].append(batch_ms(works[2]))
        found["hosted"].append(batch_ms(works[3]))
    medians = {name: statistics.median(each) for name, each in found.items()}
    print(f"\none query, {sizes.rows:,} rows in {sizes.files} batches: milliseconds a batch")
    for name, each in medians.items():
        print(f"  {name:34} {each:>9,.0f}")
    return medians, [("one query hosted, x fluent", medians["hosted"] / medians["fluent"], 1.1, False)]


def many(sizes: Sizes) -> tuple[dict[str, Any], list[Aim]]:
    """Measure batches as hosted queries become more."""
    print(f"\nhosted queries over {sizes.rows:,} rows of {sizes.keys:,} keys in {sizes.files} batches")
    print(f"  {'queries':>8} {'ms a batch':>11} {'x one':>7} {'processor s':>12} {'checkpoint MB':>14} {'peak MB':>8}")
    found: dict[str, Any] = {}
    aims: list[Aim] = []
    first = Work(window_queries(1), sizes.rows, sizes.keys, sizes.files)
    for number in sizes.many:
        progress(f"many: {number}")
        work = Work(window_queries(number), sizes.rows, sizes.keys, sizes.files)
        # A process that begins is slower; one query warms it up.
        once, works = ENGINES[US].measure(US, [first, work], f"many-{number}")
        each = works[-1]
        found[str(number)] = {**each, "batch_ms": batch_ms(each), "peak_mb": once.peak_mb}
        times = batch_ms(each) / found["1"]["batch_ms"] if "1" in found else float("nan")
        print(
            f"  {number:>8,} {batch_ms(each):>11,.0f} {times:>7.2f} {each['processor_s']:>12,.1f} "
            f"{each['checkpoint_bytes'] / 1e6:>14.2f} {once.peak_mb:>8,.0f}"
        )
        if number in AIMS and "1" in found:
            aims.append((f"{number:,} queries, x one query's batch", times, AIMS[number], False))
    return found, aims


def peers(sizes: Sizes, wanted: Sequence[str]) -> tuple[dict[str, Any], list[Aim]]:
    """Compare processor time with the peers'."""
    print(f"\nthe same queries over {sizes.peer_rows:,} rows of {sizes.peer_keys:,} keys: processor time")
    print(
        f"  {'engine':12} {'queries':>8} {'seconds':>9} {'processor s':>12} {'a query':>9} {'x ours':>7} {'peak MB':>8}"
    )
    found: dict[str, Any] = {}
    for name in wanted:
        number = sizes.peers[name]
        progress(f"peers: {name}, {number} queries")
        queries = window_queries(number)
        small = Work(queries[:2], sizes.peer_rows, sizes.peer_keys, sizes.peer_files)
        work = dataclasses.replace(small, queries=queries)
        once, works = ENGINES[name].measure(name, [small, work], f"peers-{labelled(name)}")
        each = {**works[-1], "queries": number, "peak_mb": once.peak_mb}
        each["a_query"] = each["processor_s"] / number
        found[name] = each
        times = each["a_query"] / found[US]["a_query"] if US in found else float("nan")
        print(
            f"  {name:12} {number:>8,} {each['seconds']:>9.1f} {each['processor_s']:>12.1f} {each['a_query']:>9.3f} "
            f"{times:>7.1f} {once.peak_mb:>8,.0f}"
        )
    ours = found.get(US)
    return found, [
        (f"processor time a query, {name}, x ours", found[name]["a_query"] / ours["a_query"], 20, True)
        for name in (SPARK, FLINK)
        if ours and name in found
    ]


def register(sizes: Sizes) -> tuple[dict[str, Any], list[Aim]]:
    """Measure a registration while others run, and what a text costs."""
    out = fresh(_OUT, "register")
    job = {
        "cores": cores(),
        "out": str(out),
        "queries": [query.job for query in window_queries(sizes.registered)],
        "data": feed(sizes.peer_rows, sizes.peer_keys, sizes.peer_files),
        "delay_s": DELAY_S,
    }
    progress(f"register: at {sizes.registered} queries")
    found = dict(run(engine_command("queries_register", job), log="queries-register").reported)
    print(f"\nregistering at {sizes.registered:,} running queries, each over the same feed")
    print(f"  seconds to the first result: {', '.join(f'{each:.2f}' for each in found['first_result_s'])}")
    print(f"  parse and plan of one text, ms: {found['bind_ms']:.2f}")
    return found, [
        (f"registering at {sizes.registered:,}, s", statistics.median(found["first_result_s"]), 1.0, False),
        ("parse and plan, ms a query", found["bind_ms"], 5.0, False),
    ]


def groups(sizes: Sizes) -> tuple[dict[str, Any], list[Aim]]:
    """Measure what a change of one row in a large group reads."""
    progress(f"groups: one of {sizes.rows:,} rows")
    list_ = _read_bytes("collect_set", pa.list_(pa.float64()), sizes.rows)
    median = _read_bytes("median", pa.float64(), sizes.rows)
    print(f"\nbytes of state read for a change of one row in a group of {sizes.rows:,}")
    print(f"  {'for its list, which is the whole group':40} {list_:>12,}")
    print(f"  {'for its median':40} {median:>12,}: {list_ / median:.0f} times less")
    return {"list": list_, "median": median}, [("group read, x read for its median", list_ / median, 10, True)]


def _read_bytes(function: str, kind: pa.DataType, rows: int) -> int:
    """Return the bytes that an aggregate reads from the state when one row joins a group."""
    import numpy as np
    import polars as pl

    from upstream.operators.relations.aggregate import AggregateOperator
    from upstream.operators.relations.arrangement import OperatorState
    from upstream.operators.relations.functions import AggregateCall
    from upstream.operators.relations.operator import Evaluable
    from upstream.operators.relations.zsets import Span, delta_frame
    from upstream.operators.state.store import DictStore

    value = Evaluable(lambda frame: frame.get_column("v"), frozenset("v"), pa.float64(), "v")

    class ReadCounts(DictStore):
        read = 0

        def get(self, kind: str, page: int) -> bytes | None:
            value = super().get(kind, page)
            self.read += len(value or b"")
            return value

    store = ReadCounts()
    saved: dict[str, Any] = {}
    for time_us, size in ((1, rows), (2, 1)):
        store.read = 0
        state = OperatorState(store, "groups", saved)
        call = AggregateCall(function, function, (value,), kind, share=0.5 if function == "median" else None)
        operator = AggregateOperator(pa.schema([(function, kind)]), [], [call], state)
        values = np.random.default_rng(time_us).random(size)
        operator.step([delta_frame(pl.DataFrame({"v": values}), time_us, 1)], Span.first(time_us + 1))
        saved = state.to_json()
    return store.read


def main(given: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = arguments("Continuous queries: one host for all, the fluent API, Spark, and Flink SQL.")
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part; repeatable")
    parser.add_argument("--engine", action="append", choices=tuple(ENGINES), help="run only this peer; repeatable")
    parser.add_argument("--many", action="append", type=int, help="host this many queries; repeatable")
    parser.add_argument("--queries", type=int, help="give each peer this many queries")
    parser.add_argument("--keep", action="store_true", help="keep the results in benchmarks/.cache/queries")
    args = parser.parse_args(given)
    sizes = QUICK if args.quick else FULL
    sizes = dataclasses.replace(
        sizes,
        runs=args.runs or sizes.runs,
        many=args.many or sizes.many,
        peers=dict.fromkeys(ENGINES, args.queries) if args.queries else sizes.peers,
    )
    introduce()
    parts: dict[str, Callable[[], tuple[dict[str, Any], list[Aim]]]] = {
        "alone": lambda: alone(sizes),
        "many": lambda: many(sizes),
        "peers": lambda: peers(sizes, args.engine or list(ENGINES)),
        "register": lambda: register(sizes),
        "groups": lambda: groups(sizes),
        "weights": lambda: weights(*sizes.weights),
    }
    found: dict[str, Any] = {}
    aims: list[Aim] = []
    began = time.perf_counter()
    try:
        for part in args.part or PARTS:
            found[part], reached = parts[part]()
            aims += reached
    finally:
        # Also what was measured before something failed.
        say_whether_met(aims)
        print(f"\n{time.perf_counter() - began:.0f} s in all")
        if args.json is not None:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")
        if not args.keep:
            shutil.rmtree(_OUT, ignore_errors=True)


if __name__ == "__main__":
    main()
