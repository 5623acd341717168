"""Random queries over rows that come, change and go, beside DuckDB, and beside the same query in other words.

``PYTHONPATH=tests python -m tests.simulation.differences --queries 100000 --seed 1``
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import duckdb
import polars as pl
import pyarrow as pa
from kit.continuous import CATALOG, DOMAINS
from kit.evaluated import plain, rows_at
from kit.hosting import Tables, Versions, is_behind, scanned
from kit.local_host import LocalHost

from upstream.conf.errors import UpstreamError
from upstream.hosting.messages import Command
from upstream.language import bind
from upstream.operators.relations import arrangement, as_of, join, ordered_rows
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.bounds import only_grows
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.plan.nodes import Changes, Relation
from upstream.operators.relations.plan.properties import Clock
from upstream.operators.relations.streams import SEQUENCE, TOMBSTONE
from upstream.operators.relations.zsets import TIME, WEIGHT, dtypes_of
from upstream.operators.state import key_runs, pages
from upstream.operators.state.store import DictStore

from .hosted_oracle import Answers
from .hosted_rows import STREAMS, Row, at, cells_of
from .random_queries import Queries

_TOGETHER = 12
_ODD = {**dict.fromkeys((2.5, 5.0), float("nan")), **dict.fromkeys((1.5, 3.0), -0.0)}
_UNITS = 16
_END = at(_UNITS * 4)
_LAST = at(_UNITS) + 1
_DOMAINS = pa.table(
    [["a", "b", "b", "7", None, "v9", "r1"], ["r0", "r1", "r1", None, "a", "b", "r1"]], schema=DOMAINS.schema
)
Plans = dict[str, Relation | Changes]
Step = tuple[list[Row], int]


def history(rng: random.Random) -> list[Step]:
    """Return rows in steps in any order of arrival, each step with its low-watermark."""
    rows, keys, odd = list[Row](), rng.choice((4, 4, 30)), rng.random() < 0.2
    for number in range(rng.choice((4, 12, 25, 25, 100))):
        stream, unit = rng.choice(("trade", "quote", "buses", "buses")), rng.randrange(_UNITS)
        cells = cells_of(stream, rng.randrange(keys), rng.randrange(6), at(unit))
        if odd:
            cells = tuple(_ODD.get(each, each) if isinstance(each, float) else each for each in cells)
        rows.append(Row(stream, stream, cells, at(unit), 0, number, stream == "buses" and rng.random() < 0.25, 0))
    return steps_of(rows, rng)


def steps_of(rows: Iterable[Row], rng: random.Random) -> list[Step]:
    waiting, found, bound = list(rows), list[Step](), at(0)
    rng.shuffle(waiting)
    while waiting and len(found) < 5:
        size = rng.randint(1, len(waiting))
        now, waiting = waiting[:size], waiting[size:]
        least = min((row.time for row in waiting), default=at(_UNITS))
        bound = max(bound, at(rng.randint(0, _UNITS))) if least >= at(_UNITS) else max(bound, least)
        found.append((now, bound))
    return [*found, (waiting, _END)]


def frame(stream: str, rows: Sequence[Row]) -> pl.DataFrame:
    made = pl.DataFrame([row.cells for row in rows], schema=dtypes_of(STREAMS[stream].schema), orient="row")
    numbers = pl.Series(SEQUENCE, [row.seq for row in rows], dtype=pl.Int64)
    return made.with_columns(numbers, pl.Series(TOMBSTONE, [row.deleted for row in rows], dtype=pl.Boolean))


def stored_rows() -> pl.DataFrame:
    return pl.DataFrame(_DOMAINS).with_columns(pl.lit(value=False).alias(TOMBSTONE))


@dataclass(frozen=True)
class Ways:
    """The ways to evaluate queries."""

    clock: Clock = "event"
    collapse: bool = False
    restarts: bool = False
    shares: bool = False

    @property
    def each_change(self) -> bool:
        """Return whether the results have the changes of each time."""
        return self.clock == "event" and not self.collapse

    def times(self, changes: pl.DataFrame, rng: random.Random) -> list[int]:
        """Return some times at which to compare: the end, and some of the changes unless steps have only one."""
        if not self.each_change:
            return [_END]  # changes by arrival have the time of their step
        times = [each for each in changes[TIME].unique().sort() if at(0) <= each < _END]
        return [_END - 1, *rng.sample(times, min(3, len(times)))]


def evaluated(plans: Plans, steps: Sequence[Step], ways: Ways) -> tuple[dict[str, pl.DataFrame], dict[str, Any]]:
    """Return the changes of queries that run together, and which failed."""
    store, failed = DictStore(), dict[str, Any]()
    found: dict[str, list[pl.DataFrame]] = {name: [] for name in plans}
    evaluation: Evaluation | None = None
    for number, (rows, bound) in enumerate(steps):
        if evaluation is None or ways.restarts:
            evaluation = Evaluation(store, clock=ways.clock)
            for name, plan in plans.items():
                if name not in failed:
                    evaluation.add(name, shareable(plan) if ways.shares else plan, collapse=ways.collapse)
        given = {name: frame(name, [row for row in rows if row.stream == name]) for name in STREAMS}
        if number == 0:
            given[DOMAINS.name] = stored_rows()
        now = bound if ways.clock == "arrival" else None
        outcome = evaluation.step(given, bound, now=now)
        assert not any(each.height for each in outcome.late.values())
        failed |= outcome.failed
        for name, changes in outcome.changes.items():
            found[name].append(changes)
        evaluation.save()
    return {name: pl.concat(each) for name, each in found.items() if name not in failed}, failed


def table_of(query: tuple[str, str]) -> str:
    """Return a query whose rows are the groups of another one's."""
    text, types = query
    names = ", ".join(f"c{at}" for at in range(len(types)))
    return f"SELECT {names}, COUNT(*) AS copies FROM ({text}) AS r GROUP BY {names}"


def tables_of(texts: Sequence[str], steps: Sequence[Step]) -> tuple[dict[int, Counter[Any]], dict[int, str]]:
    """Return the tables of queries that one job hosts in two shards, by number, and which failed."""
    numbered = {f"q{number}": (number, text) for number, text in enumerate(texts, 1)}
    host = LocalHost(Versions({1: numbered}), 2, random.Random(1))
    tables, batch = Tables(host.plan(1)), 0
    given = iter(steps)
    while True:
        rows, bound = next(given, (None, 0))
        if rows is None and not is_behind(host):
            break
        tasks = {name: [_scanned(name, rows, bound)] for name in STREAMS} if rows is not None else {}
        tables.take(host.batch(Command(batch, 1), tasks))
        batch += 1
    return {number: tables.contents(number) for number, _ in numbered.values()}, tables.failed


def _scanned(stream: str, rows: Sequence[Row], bound: int) -> pa.Table:
    own = [row for row in rows if row.stream == stream]
    numbers, deleted = [row.seq for row in own], [row.deleted for row in own]
    cells = frame(stream, own).drop(SEQUENCE, TOMBSTONE)
    return scanned(STREAMS[stream], cells, numbers, {"f": bound}, sequences=numbers, deleted=deleted)


_NOT_IN = re.compile(r"\(([^\s(]+), (\S+)\) NOT IN (/\*r\d+\*/)\((.*)\3\)")
_NOWHERE = r"NOT EXISTS (SELECT 1 FROM (\4) AS z WHERE COALESCE(z.c0 = \1, TRUE) AND COALESCE(z.c1 = \2, TRUE))"


_PAIRS = re.compile(r"HOP\(/\*(r\d+)\*/\((.*)\)/\*\1 (\d)\*/, (\w+), INTERVAL '(\d)' MINUTE, INTERVAL '(\d)' MINUTE\)")


def _pairs(found: re.Match[str], tau: int) -> str:
    """The pairs of the last window that gets no more of them."""
    late, slide, size = (int(found[at]) * 60_000_000 for at in (3, 5, 6))
    end = (tau - late) // slide * slide
    bounds = f"make_timestamptz({end - size}) AS window_start, make_timestamptz({end}) AS window_end"
    times = f"{found[4]} >= make_timestamptz({end - size}) AND {found[4]} < make_timestamptz({end})"
    return f"(SELECT *, {bounds} FROM ({found[2]}) WHERE {times})"


def for_duckdb(sql: str, tau: int) -> str:
    while _NOT_IN.search(sql):  # DuckDB takes two rows with nulls for equal or different, but never for unknown
        sql = _NOT_IN.sub(_NOWHERE, sql)
    while _PAIRS.search(sql):
        sql = _PAIRS.sub(lambda found: _pairs(found, tau), sql)
    sql = re.sub(r"\bARRAY\(", "LIST_VALUE(", sql)
    return sql.replace("<=>", "IS NOT DISTINCT FROM").replace("now()", f"make_timestamptz({tau})")


@contextlib.contextmanager
def small_parts() -> Iterator[None]:
    """Divide state into parts of a few rows, as the state of many rows is."""
    few = {key_runs: {"ROWS_OF_BUCKET": 2, "_ROWS": 4}, pages: {"_ROWS": 4}, arrangement: {"_ROWS": 8}}
    with contextlib.ExitStack() as stack:
        for module, sizes in few.items():
            stack.enter_context(patch.multiple(module, **sizes))
        for module in (ordered_rows, as_of):
            stack.enter_context(patch.multiple(module, ROWS_OF_ONE=4))
        stack.enter_context(patch.multiple(join, _MANY=4))
        yield


class Campaign:
    """Queries, and what became of them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.outcome = Counter[str]()
        self.reasons = Counter[str]()
        self.differences: list[str] = []

    def run(self, count: int, begin: int = 0) -> None:
        """Run so many queries, in rounds over the same rows, each from a seed of its own, which `begin` chooses."""
        for number in range(begin, begin + count, _TOGETHER):
            rng = random.Random(f"{self.seed} {number}")
            compare = self._hosted if rng.random() < 0.2 else self._beside_duckdb
            with small_parts() if rng.random() < 0.5 else contextlib.nullcontext():
                compare(rng)
            self._in_other_words(rng)

    def _bound(self, texts: Iterable[str], *, compiles: bool = False) -> Plans:
        plans: Plans = {}
        for text in texts:
            try:
                plan = bind(f"{text} EMIT CHANGES", CATALOG).plan
                if compiles:
                    Evaluation(DictStore()).add("q", plan)
                plans[text] = plan
            except UpstreamError as error:
                self.outcome["refused"] += 1
                self.reasons[re.sub(r"'[^']*'|\d+", "…", str(error).partition("\n")[0])[:160]] += 1
        return plans

    def _beside_duckdb(self, rng: random.Random) -> None:
        clock: Clock = rng.choice(("event", "event", "event", "arrival"))
        ways = Ways(clock, *(rng.random() < 0.5 for _ in range(3)))
        steps, queries = history(rng), Queries(rng, newest=clock == "arrival", stored=True)
        plans = self._bound(queries.relation() for _ in range(_TOGETHER))
        streams: Plans = {}
        if ways.each_change:
            texts = [*plans][:3]
            streams = {
                sql: bind(sql, CATALOG).plan for each in texts for sql in (f"ISTREAM({each})", f"DSTREAM({each})")
            }
        found, failed = evaluated(plans | streams, steps, ways)
        for sql in streams.keys() & found.keys():
            if counted([found[sql]]) != came_or_left(found[sql[8:-1]], sql[0]):
                self._report(f"{sql}\nis not of the changes of its relation: {as_written_steps(steps)}")
        rows = [row for each, _ in steps for row in each]
        for text in plans:
            self.outcome["compared"] += 1
            if text in failed:
                self._differs(text, steps, ways, f"it failed: {failed[text]!r}")
                continue
            try:
                wrong = difference(text, found[text], rows, ways.times(found[text], rng))
            except duckdb.Error as error:
                self.outcome["not in DuckDB"] += 1
                self.reasons[f"DuckDB: {str(error)[:120]}"] += 1
                continue
            self.outcome["with rows"] += found[text].height > 0
            if only_grows(plans[text]):
                self.outcome["only grow"] += 1
                wrong = wrong or ("rows leave" if (found[text][WEIGHT] < 0).any() else "")
            if wrong:
                self._differs(text, steps, ways, wrong)

    def _hosted(self, rng: random.Random) -> None:
        """Compare the tables that a job makes."""
        steps, queries = history(rng), Queries(rng)
        last = [*steps[:-1], (steps[-1][0], _LAST)]
        plans = self._bound(map(table_of, (queries.typed() for _ in range(_TOGETHER))))
        found, failed = tables_of([*plans], last)
        answers = Answers([row for rows, _ in steps for row in rows], set())
        for number, text in enumerate(plans, 1):
            self.outcome["hosted"] += 1
            if number in failed:
                self._report(f"a hosted query failed: {failed[number]}\n{text}\n{as_written_steps(last)}")
                continue
            try:
                expected = answers.at(for_duckdb(text, _LAST - 1), _LAST - 1)
            except duckdb.Error:
                self.outcome["not in DuckDB"] += 1
                continue
            width = len(plans[text].schema)  # a key with nulls has a column of its own before these
            rows = Counter(tuple(map(plain, row[-width:])) for row in found[number].elements())
            self.outcome["with rows"] += bool(rows)
            if rows != expected:
                self._report(f"hosted: {rows - expected} should be {expected - rows}\n{text}\n{as_written_steps(last)}")

    def _differs(self, text: str, steps: Sequence[Step], ways: Ways, wrong: str) -> None:
        self.outcome["different"] += 1
        self._report(f"{ways}, {wrong}\n{text}\n{smaller(text, steps, ways)}")

    def _report(self, difference: str) -> None:
        self.differences.append(difference)
        print(difference, "\n", flush=True)

    def _in_other_words(self, rng: random.Random) -> None:
        """Compare conditions with functions of Spark's own with themselves: as a condition, and as a value."""
        condition, steps = Queries(rng).condition(), history(rng)
        source = rng.choice(("trade [RANGE 5 MINUTES]", "trade [ROWS 3]", "trade [RANGE 4 MINUTES SLIDE 2 MINUTES]"))
        parts = [
            f"SELECT sym, px, n FROM {source} WHERE {each}"
            for each in (condition, f"NOT {condition}", f"{condition} IS NULL")
        ]
        whole = f"SELECT sym, px, n FROM {source}"
        value = f"SELECT sym, px, n, {condition} AS b FROM {source}"
        plans = self._bound((*parts, whole, value), compiles=True)
        if len(plans) < 5:
            return
        found, failed = evaluated(plans, steps, Ways())
        self.outcome["in other words"] += 1
        if failed:
            self.outcome["failed"] += 1
            if len(failed) != 4:
                self._report(f"only some fail: {failed}")
            return
        if counted([found[each] for each in parts]) != counted([found[whole]]):
            self._report(f"{condition} is neither true, false nor null, or twice: {steps}")
        if counted([found[parts[0]]]) != counted([found[value].filter(pl.col("b")).drop("b")]):
            self._report(f"{condition} is another one in SELECT: {steps}")


def counted(parts: Iterable[pl.DataFrame]) -> dict[str, int]:
    counts = Counter[str]()
    for each in parts:
        for *row, weight in each.rows():
            counts[repr(row)] += weight
    return {row: count for row, count in counts.items() if count}


def came_or_left(changes: pl.DataFrame, kind: str) -> dict[str, int]:
    """Return the rows of a relation that come at each time, `I`, or leave, `D`."""
    summed = changes.group_by(pl.all().exclude(WEIGHT)).agg(pl.col(WEIGHT).sum()).select(changes.columns)
    if kind == "D":
        summed = summed.with_columns(-pl.col(WEIGHT))
    return counted([summed.filter(pl.col(WEIGHT) > 0)])


def difference(text: str, changes: pl.DataFrame, rows: Sequence[Row], times: Iterable[int]) -> str:
    """Return how the relation differs from DuckDB's at some time; empty if it does not."""
    answers = Answers(rows, set(), {DOMAINS.name: _DOMAINS})
    for tau in times:
        found, expected = rows_at(changes, tau), answers.at(for_duckdb(text, tau), tau)
        if found != expected:
            return f"at {tau - at(0)}: {dict(found - expected)} should be {dict(expected - found)}"
    return ""


def smaller(text: str, steps: Sequence[Step], ways: Ways) -> str:
    """Return fewer rows with which a query alone still differs."""
    plans: Plans = {text: bind(f"{text} EMIT CHANGES", CATALOG).plan}

    def differs(rows: list[Row]) -> str:
        found, failed = evaluated(plans, [(rows, at(_UNITS)), ([], _END)], ways)
        if failed:
            return repr(failed)
        return difference(text, found[text], rows, ways.times(found[text], random.Random(1)))

    rows = [row for each, _ in steps for row in each]
    if not differs(rows):
        return f"alone in one step it does not; {as_written_steps(steps)}"
    for row in list(rows):
        fewer = [each for each in rows if each is not row]
        if differs(fewer):
            rows = fewer
    return f"{differs(rows)}: {as_written(rows)}"


def as_written_steps(steps: Sequence[Step]) -> list[Any]:
    return [(as_written(rows), bound - at(0)) for rows, bound in steps]


def as_written(rows: Sequence[Row]) -> list[Any]:
    return [(row.stream, row.cells[:-1], row.time - at(0), row.seq, row.deleted) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    campaign = Campaign(given.seed)
    campaign.run(given.queries)
    print(json.dumps([campaign.outcome, campaign.reasons.most_common(25)], indent=1))


if __name__ == "__main__":
    main()
