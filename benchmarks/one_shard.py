"""One shard of newest rows, groups and joins by both engines: ``python -m benchmarks.one_shard``.

`join_latest` and `group_by` have operators of their own; continuous queries have those of relations. Here both take
the same rows in one process, without Spark: all keys first, then batches of a few updates. A batch of either decodes
its rows, steps, saves its state and encodes its result. The figures are the processor time of a batch, medians of
rounds in turn. After each round the relations of both must be equal, or the benchmark stops.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from upstream.core.rows.frames import from_frame, to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, deleted_mask, system_array
from upstream.expressions.nodes import Field
from upstream.operators.aggregates.functions import count, max_, sum_
from upstream.operators.aggregates.parts import Aggregate
from upstream.operators.grouped.groups import GroupShard
from upstream.operators.grouped.plan import GroupPlan
from upstream.operators.joins.latest_changes import LatestJoinShard, VersionShard
from upstream.operators.joins.latest_plan import LatestJoinPlan, LatestSide, VersionPlan
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.nodes import Aggregation, GroupAggregates, Join, Latest, Node, Stream, WindowOver
from upstream.operators.relations.streams import SEQUENCE, TOMBSTONE
from upstream.operators.relations.zsets import WEIGHT
from upstream.operators.state.runs import of_worker
from upstream.operators.state.store import DictStore

GROUPS = 200
LONG = pa.int64()
LEFT = pa.schema([("k", LONG), ("at", LONG), ("g", LONG), ("r", LONG), ("v", LONG)])
RIGHT = pa.schema([("j", LONG), ("u", LONG), ("w", LONG)])
SIDES = (LEFT.append(pa.field(SYSTEM, SYSTEM_TYPE)), RIGHT.append(pa.field(SYSTEM, SYSTEM_TYPE)))
S = Stream("s", LEFT, ("k",), "at", updates=True)
R = Stream("r", RIGHT, ("j",), "u", updates=True)
NEWEST, OTHERS = WindowOver(S, Latest()), WindowOver(R, Latest())
SUMS = (Aggregation("n", "count", (), LONG), Aggregation("total", "sum", (Field("v", LONG),), LONG))
MOST = (*SUMS, Aggregation("most", "max", (Field("v", LONG),), LONG))


_FIRST = 3


@dataclass
class Feed:
    """Batches of rows of one side: first all keys, then updates."""

    side: int
    keys: int
    rows: int
    chance: np.random.Generator
    batch: int = 0

    def __call__(self) -> pa.Table:
        """Return the next batch."""
        ids = np.arange(self.keys) if self.batch == 0 else self.chance.integers(0, self.keys, self.rows)
        n = len(ids)
        at = self.batch * 1_000_000 + np.arange(n)
        values = [self.chance.integers(0, most, n) for most in (GROUPS, self.keys, 1_000_000)]
        columns = [ids, at, *values] if self.side == 0 else [ids, at, values[2]]
        system = system_array(source="feed", seq=np.arange(n), arrival_us=at)
        self.batch += 1
        return pa.table([*(pa.array(each) for each in columns), system], schema=SIDES[self.side])


class Versions:
    """The newest row of each left key, as `join_latest` and `group_by` keep it."""

    def __init__(self, on: tuple[str, ...], values: tuple[str, ...] | None) -> None:
        self.side = LatestSide(on, "", SIDES[0], ("k",), "at", values)
        self.store = DictStore()

    def __call__(self, left: bytes) -> bytes:
        """Return the changes that a batch makes."""
        result, _ = VersionShard(0, VersionPlan(self.side, 1), self.store, of_worker()).run([left])
        return to_frame(self.side.versioned.empty_table() if result is None else result)


class Relation:
    """A plan by the operators of relations; the newest left rows may be given."""

    def __init__(self, plan: Node, given: tuple[Node, ...] = ()) -> None:
        self.given = given
        self.evaluation = Evaluation(DictStore(), clock="arrival")
        self.evaluation.add("q", plan, given, collapse=True)
        self.batches = 0

    def __call__(self, left: bytes, right: bytes | None = None) -> bytes:
        """Return the changes that a batch makes."""
        self.batches += 1
        rows = [as_frame(from_frame(each)) for each in (left, right) if each is not None]
        received = dict(zip(self.given, rows, strict=False))
        streams = {name: each for name, each in zip("sr", rows, strict=False) if not (received and name == "s")}
        found = self.evaluation.step(streams, 0, received, now=self.batches).changes["q"]
        self.evaluation.save()
        return to_frame(found.to_arrow(compat_level=pl.CompatLevel.oldest()))


def as_frame(table: pa.Table) -> pl.DataFrame:
    """Return a table as Polars has it."""
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)
    return found


def as_streamed(table: pa.Table) -> bytes:
    """Return rows as continuous queries receive them."""
    rows = table.drop_columns([SYSTEM])
    rows = rows.append_column(SEQUENCE, pa.array(np.arange(rows.num_rows)))
    return to_frame(rows.append_column(TOMBSTONE, deleted_mask(table)))


class Part(NamedTuple):
    """One part by both engines."""

    key: tuple[str, ...]  # of results
    columns: tuple[str, ...]  # what both give of a result
    # Each takes the frames of both sides.
    own: Callable[[bytes, bytes], bytes]
    relations: Callable[[bytes, bytes], bytes]


def parts() -> dict[str, Part]:
    """Return what is compared, with empty states. Behind a stage, both are given the changes of their own first one."""
    versions, newest = Versions(("g",), ("v",)), Relation(NEWEST)
    return {
        "newest rows": Part(("k",), ("k", "g", "v"), lambda left, _: versions(left), lambda left, _: newest(left)),
        "sums by group": groups(SUMS, {"n": count(), "total": sum_("v")}),
        "sums and a greatest value by group": groups(MOST, {"n": count(), "total": sum_("v"), "most": max_("v")}),
        "join on the key": joined("k"),
        "join on a column": joined("r"),
    }


def groups(calls: tuple[Aggregation, ...], aggregates: dict[str, Aggregate]) -> Part:
    """Return groups of the left's newest rows."""
    inputs = GroupPlan(LatestSide(("g",), "", SIDES[0], ("k",), "at", ()), aggregates, 1).algebra.inputs
    plan = GroupPlan(LatestSide(("g",), "", SIDES[0], ("k",), "at", inputs), aggregates, 1)
    store = DictStore()
    relation = Relation(GroupAggregates(NEWEST, (("g", Field("g", LONG)),), calls), (NEWEST,))

    def own(left: bytes, _: bytes) -> bytes:
        result, _ = GroupShard(0, plan, store, of_worker()).run([left])
        return to_frame(plan.schema.empty_table() if result is None else result)

    return Part(("g",), ("g", *aggregates), own, lambda left, _: relation(left))


def joined(column: str) -> Part:
    """Return the join of a column of the left with the key of the right."""
    side = LatestSide((column,), "", SIDES[0], ("k",), "at")
    plan = LatestJoinPlan(side, LatestSide(("j",), "", SIDES[1], ("j",), "u"))
    store = DictStore()
    node = Join(NEWEST, OTHERS, "inner", ((Field(column, LONG), Field("j", LONG)),))
    relation = Relation(node, () if column == "k" else (NEWEST,))

    def own(left: bytes, right: bytes) -> bytes:
        result, _ = LatestJoinShard(0, plan, store, of_worker()).run([left], [right])
        return to_frame(plan.schema.empty_table() if result is None else result)

    return Part(("k",), ("k", "v", "w"), own, relation)


class Stage:
    """The frames that both engines are given of a batch."""

    def __init__(self) -> None:
        self.versions = {"g": Versions(("g",), ("v",)), "r": Versions(("r",), None)}
        self.newest = Relation(NEWEST)

    def frames(self, left: pa.Table, right: pa.Table) -> dict[str, tuple[tuple[bytes, bytes], tuple[bytes, bytes]]]:
        """Return the frames of each part for either engine."""
        plain = to_frame(left), to_frame(right)
        streamed = as_streamed(left), as_streamed(right)
        deltas = self.newest(streamed[0]), streamed[1]
        by_group = (self.versions["g"](plain[0]), plain[1]), deltas
        return {
            "newest rows": (plain, streamed),
            "sums by group": by_group,
            "sums and a greatest value by group": by_group,
            "join on the key": (plain, streamed),
            "join on a column": ((self.versions["r"](plain[0]), plain[1]), deltas),
        }


def merged(table: pl.DataFrame, changes: pl.DataFrame, key: tuple[str, ...], gone: pl.Series) -> pl.DataFrame:
    """Return a table with a batch's results in place of those with their keys."""
    there = changes.filter(~gone).select(table.columns) if table.width else changes.filter(~gone)
    left = table.join(changes.select(key), on=key, how="anti") if table.height else table
    return pl.concat([left, there]) if left.height else there


def table_of(part: Part, table: pl.DataFrame, frame: bytes, *, own: bool) -> pl.DataFrame:
    """Return a part's table after the changes of a batch."""
    rows = from_frame(frame)
    found = as_frame(rows.drop_columns([SYSTEM]) if own else rows)
    gone = pl.Series(deleted_mask(rows).to_numpy()) if own else found.get_column(WEIGHT) < 0
    # A key's tombstone may come beside the row that replaces it.
    found = found.with_columns(gone.alias("gone")).sort("gone", descending=True, maintain_order=True)
    found = found.unique(part.key, keep="last", maintain_order=True)
    return merged(table, found.select(*part.columns, "gone").drop("gone"), part.key, found.get_column("gone"))


def measure(keys: int, rows: int, batches: int, seed: int) -> dict[str, tuple[float, float]]:
    """Run a round; return by part the processor milliseconds of a batch, median, of either engine."""
    left, right = Feed(0, keys, rows, np.random.default_rng(seed)), Feed(1, keys, rows, np.random.default_rng(seed + 1))
    compared, stage = parts(), Stage()
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in compared}
    tables = {name: [pl.DataFrame(), pl.DataFrame()] for name in compared}
    for number in range(batches + _FIRST):
        given = stage.frames(left(), right())
        for name, part in compared.items():
            for at in (0, 1) if number % 2 else (1, 0):
                began = time.process_time()
                found = part[2 + at](*given[name][at])
                times[name][at].append(time.process_time() - began)
                tables[name][at] = table_of(part, tables[name][at], found, own=at == 0)
    for name, (one, two) in tables.items():
        if not one.sort(one.columns).equals(two.select(one.columns).sort(one.columns)):
            raise SystemExit(f"both engines give other results: {name}")
    return {
        name: (statistics.median(one[_FIRST:]) * 1e3, statistics.median(two[_FIRST:]) * 1e3)
        for name, (one, two) in times.items()
    }


def main() -> None:
    """Run the rounds, and print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=250_000, help="use this many keys of each side")
    parser.add_argument("--rows", type=int, default=2_500, help="use this many updates in each batch of a side")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPARK_LOCAL_DIRS"] = folder  # where workers of Spark map runs as files
        rounds = [measure(asked.keys, asked.rows, asked.batches, 10 * turn) for turn in range(asked.rounds)]
    print(f"{asked.rows:,} updates a batch, {asked.keys:,} keys a side, processor milliseconds of a batch:")
    for name in rounds[0]:
        own, relations = (statistics.median(each[name][at] for each in rounds) for at in (0, 1))
        print(f"  {name}: own {own:.1f}, relations {relations:.1f} ({relations / own:.2f} x)")


if __name__ == "__main__":
    main()
