"""Hosted queries without Spark: registries in memory, rows as scans see them, and the tables that results make."""

import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from hypothesis import strategies as st

from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.expressions.nodes import Field
from upstream.hosting.host_plan import HostPlan
from upstream.hosting.journal import Settings
from upstream.hosting.messages import Command
from upstream.hosting.output import result_rows
from upstream.hosting.placement import Fragment, Placement, Route
from upstream.hosting.registry import RegisteredQuery, Registry
from upstream.language import Catalog, bind
from upstream.operators.relations.plan.nodes import (
    Changes,
    GroupAggregates,
    Latest,
    Node,
    RowWindow,
    Stream,
    WindowOver,
    walk,
)
from upstream.operators.relations.streams import SEQUENCE
from upstream.operators.relations.zsets import dtypes_of
from upstream.operators.runtime.feeds import punctuation_rows

from .continuous import BUSES, CATALOG, END_US, QUOTE, TRADE
from .local_host import LocalHost, OutputRow

STREAMS = (TRADE, QUOTE, BUSES)


def gathered(plan: Node) -> Placement:
    """Place a plan in one slot of the first stage."""
    streams = {each.name: each for each in walk(plan) if isinstance(each, Stream)}
    return Placement((Fragment(plan, tuple(Route(streams[name], ()) for name in sorted(streams)), None),), None)


def windows_first(plan: Node) -> Placement:
    """Place the windows over streams in the first stage, divided by what they keep together; gather the rest."""
    windows = {each for each in walk(plan) if isinstance(each, WindowOver) and not isinstance(each.origin, Changes)}
    if plan in windows or any(isinstance(each.origin, Stream) and each.origin.static for each in windows):
        return gathered(plan)
    every_change = any(isinstance(each, Changes) for each in walk(plan))
    return Placement(tuple(_window(each, every_change) for each in sorted(windows, key=repr)), plan)


def groups_second(plan: Node) -> Placement:
    """Place what the groups of a query are made of in the first stage, and divide it by group; else as above."""
    windows = windows_first(plan)
    for each in walk(plan):
        if isinstance(each, GroupAggregates) and each.by and len(windows.fragments) == 1 and windows.second is not None:
            ((route,), every_change) = windows.fragments[0].routes, windows.fragments[0].every_change
            by = tuple(expression for _, expression in each.by)
            return Placement((Fragment(each.source, (route,), by, every_change),), plan)
    return windows


def _window(node: WindowOver, every_change: bool) -> Fragment:
    stream = node.origin
    assert isinstance(stream, Stream)
    names: Sequence[str] = stream.schema.names
    if isinstance(node.window, Latest):
        names = stream.key
    elif isinstance(node.window, RowWindow):
        names = node.window.partition
    by = tuple(Field(name, stream.schema.field(name).type) for name in names)
    return Fragment(node, (Route(stream, by),), (), every_change)


class Versions:
    """A registry at some versions: by version, the queries in force as (incarnation, text) by name.

    Incarnations that have failed are so in all versions; `held` has the paused ones whose state is kept, by version.
    """

    def __init__(
        self,
        versions: Mapping[int, Mapping[str, tuple[int, str]]],
        buckets: int = 1,
        catalog: Catalog = CATALOG,
        failed: Collection[int] = (),
        held: Mapping[int, Collection[int]] = MappingProxyType({}),
    ) -> None:
        known: dict[tuple[int, str], RegisteredQuery] = {}
        self._made: dict[int, Registry] = {}
        for version, texts in versions.items():
            queries: dict[str, RegisteredQuery] = {}
            for name, (number, text) in texts.items():
                if (number, name) not in known:
                    query = bind(text, catalog)
                    known[number, name] = RegisteredQuery(
                        number, name, text, 1.0, True, None, buckets, f"/t/{name}", query
                    )
                queries[name] = known[number, name]
                if number in held.get(version, ()):
                    queries[name] = replace(queries[name], active=False, kept_since_us=0)
            self._made[version] = Registry(
                version, catalog, queries, Settings("/t", 8, STREAMS), failed=frozenset(failed)
            )

    def __call__(self, version: int) -> Registry:
        return self._made[version]


def scanned(
    stream: Stream,
    rows: pl.DataFrame,
    arrivals: Sequence[int],
    bounds: Mapping[str, int | None] | None = None,
    *,
    sequences: Sequence[int] | None = None,
    deleted: Sequence[bool] | None = None,
    feed: str = "f",
) -> pa.Table:
    """Return rows with the system column, then punctuation of feeds; a bound of None ends its feed."""
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(stream.schema)
    size = table.num_rows
    system = system_array(
        source=feed,
        seq=np.array(arrivals if sequences is None else sequences, dtype=np.int64),
        arrival_us=np.array(arrivals, dtype=np.int64),
        deleted=np.zeros(size, dtype=np.bool_) if deleted is None else np.array(deleted, dtype=np.bool_),
    )
    table = table.append_column(SYSTEM, system)
    if not bounds:
        return table
    times = pa.array(list(bounds.values()), pa.int64()).cast(stream.schema.field(stream.event_time).type)
    now = max(arrivals, default=0)
    return pa.concat_tables([table, punctuation_rows(table.schema, list(bounds), now, **{stream.event_time: times})])


@dataclass
class Tables:
    """The tables and feeds that results make, as the sink does it."""

    plan: HostPlan
    rows: dict[int, dict[tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=dict)
    feeds: dict[int, Counter[tuple[Any, ...]]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    begun: dict[int, int | None] = field(default_factory=dict)
    late: Counter[str] = field(default_factory=Counter)
    written: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)

    def take(self, left: Iterable[OutputRow]) -> None:
        """Take what a batch gives."""
        parts: dict[int, list[pa.Table]] = {}
        self.waiting = set()
        for each in left:
            leaving = each.leaving
            if leaving.kind == "rows":
                assert each.frame is not None
                parts.setdefault(leaving.query, []).append(result_table(each.frame))
            elif leaving.kind == "begun":
                known = self.begun.get(leaving.query, leaving.complete_from)
                both = (known, leaving.complete_from)
                self.begun[leaving.query] = None if None in both else max(each for each in both if each is not None)
            elif leaving.kind == "failed":
                self.failed[leaving.query] = leaving.reason
            elif leaving.kind == "late":
                self.late[leaving.name] += leaving.count
            else:
                assert leaving.kind in ("waiting", "reached", "behind")
                self.waiting.update(leaving.queries)
        self.written = set(parts)
        for query, tables in parts.items():
            if query not in self.failed:
                self._merge(query, pa.concat_tables(tables))

    def _merge(self, query: int, table: pa.Table) -> None:
        result = self.plan.queries[query].result
        names = result.schema.names
        assert table.schema.names == [*names, SYSTEM]
        if result.kind == "feed":
            self.feeds.setdefault(query, Counter()).update(
                tuple(row[name] for name in names) for row in table.to_pylist()
            )
            return
        there = self.rows.setdefault(query, {})
        seen: set[tuple[Any, ...]] = set()
        for row in sorted(table.to_pylist(), key=lambda each: -each[SYSTEM]["seq"]):
            key = tuple(row[name] for name in result.key)
            if key not in seen:
                seen.add(key)
                if row[SYSTEM]["deleted"]:
                    assert key in there, "a tombstone of a key that is not there"
                    del there[key]
                else:
                    there[key] = tuple(row[name] for name in names)

    def contents(self, query: int) -> Counter[tuple[Any, ...]]:
        """Return the rows of a table, or all rows of a feed."""
        return self.feeds.get(query) or Counter(self.rows.get(query, {}).values())


def result_table(*frames: bytes) -> pa.Table:
    """Return the rows of a query's frames, with the system column that they would have in a table's input."""
    came = result_rows(frames)
    system = system_array(
        source="",
        seq=came.seq,
        arrival_us=came.arrival_us,
        first_arrival_us=came.first_arrival_us,
        deleted=came.deleted,
    )
    return came.rows.append_column(SYSTEM, system)


def frame(stream: Stream, rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """Return rows of a stream."""
    return pl.DataFrame(list(rows), schema=dtypes_of(stream.schema), orient="row")


class Arrivals:
    """Rows of each stream in the order in which they come, in batches, with the bounds that hold."""

    def __init__(self, rows: Mapping[str, pl.DataFrame], draw: st.DataObject, batches: int) -> None:
        self.rows: dict[str, pl.DataFrame] = {}
        self.batches: list[dict[str, list[pa.Table]]] = [{} for _ in range(batches + 1)]
        for stream in STREAMS:
            came = rows[stream.name]
            order = draw.draw(st.permutations(range(came.height)))
            batch_of = sorted(
                draw.draw(st.lists(st.integers(0, batches - 1), min_size=len(order), max_size=len(order)))
            )
            came = came[list(order)] if order else came
            self.rows[stream.name] = came.with_columns(pl.Series(SEQUENCE, range(came.height), dtype=pl.Int64))
            times = came.get_column(stream.event_time).dt.epoch("us").to_list()
            # Some heartbeats are missing; the bounds that are sent are the greatest that hold.
            silent = draw.draw(st.sets(st.integers(0, batches - 1)))
            for batch in range(batches + 1):
                at = [place for place, number in enumerate(batch_of) if number == batch]
                later = [time for time, number in zip(times, batch_of, strict=True) if number > batch]
                bound = {"f": min(later, default=END_US)}
                if batch == batches:
                    bound = {"f": END_US}
                elif batch in silent:
                    bound = {}
                tasks = [at[::2], at[1::2]]
                self.batches[batch][stream.name] = [
                    scanned(stream, came[some] if some else came[:0], [1 + one for one in some], bound)
                    for some in tasks
                    if some or bound
                ]


def run(
    host: LocalHost,
    command: Command,
    tasks: dict[str, list[pa.Table]],
    tables: Tables,
    taken: list[OutputRow] | None = None,
) -> LocalHost:
    """Run a batch, then run it again from a copy of the state, as in another process after a crash; go on from there.

    The first run uses the evaluations that this process has kept, the second makes new ones.
    """
    again = host.snapshot(random.Random(command.batch + 1))
    reversed_tasks = {name: each[::-1] for name, each in reversed(tasks.items())}
    left = host.batch(command, tasks)
    assert again.batch(command, reversed_tasks) == left
    for one, other in zip([*host.first, *host.second], [*again.first, *again.second], strict=True):
        assert one.values.keys() == other.values.keys()
    tables.take(left)
    if taken is not None:
        taken += left
    return again


def is_behind(host: LocalHost) -> bool:
    """Return whether periods are left for the next batch, which the host then starts by itself."""
    stores = [*host.first, *host.second]
    heads = [json.loads(store.values["head", 0]) for store in stores if ("head", 0) in store.values]
    return any(head["held"]["behind"] for head in heads)
