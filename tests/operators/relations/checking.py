"""Plans over two small streams, each with its SQL: what the relation at any time is to be equal to."""

import json
from collections import Counter
from dataclasses import dataclass, field, replace

import duckdb
import polars as pl
import pyarrow as pa
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST
from upstream.expressions.nodes import Call, Constant, Field, fields
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.operator import Evaluable
from upstream.operators.relations.plan.nodes import (
    Aggregation,
    Hop,
    Latest,
    Now,
    RowWindow,
    Stream,
    TimeRange,
    UnboundedWindow,
    WindowFunction,
    WindowOver,
)
from upstream.operators.relations.streams import SEQUENCE, TOMBSTONE
from upstream.operators.relations.zsets import TIME
from upstream.operators.state.store import DictStore

LONG, TEXT, BOOL = pa.int64(), pa.string(), pa.bool_()
S = Stream("s", pa.schema([("t", LONG), ("k", TEXT), ("v", LONG)]), key=("k",), event_time="t", updates=True)
R = Stream("r", pa.schema([("u", LONG), ("j", TEXT), ("w", LONG)]), key=("j",), event_time="u", updates=True)
END = 40

_OPERATIONS = {
    "add": lambda a, b: a + b,
    "and": lambda a, b: a & b,
    "eq": lambda a, b: a == b,
    "gt": lambda a, b: a > b,
    "lt": lambda a, b: a < b,
    "mod": lambda a, b: a % b,
    "multiply": lambda a, b: a * b,
}


def column(name, kind=LONG):
    return Field(name, kind)


def constant(value, kind=LONG):
    return Constant(value, kind)


def call(function, *arguments, kind=BOOL):
    return Call(function, arguments, kind)


T, K, V, J, W = column("t"), column("k", TEXT), column("v"), column("j", TEXT), column("w")
LARGE = call("gt", V, constant(1))
N = Aggregation("n", "count", (), LONG)
FUNCTIONS = (
    WindowFunction(Aggregation("rank", "rank", (), pa.int32())),
    WindowFunction(Aggregation("lag", "lag", (V,), LONG), number=1),
    WindowFunction(Aggregation("total", "sum", (V,), LONG)),
)
"""Window functions of the value, for any order."""


def compiled(expression, schema):
    """Return what evaluates the few functions that these tests use; the language's own compiler has its own tests."""

    def of(node):
        if isinstance(node, Field):
            assert schema.field(node.name).type == node.type
            return pl.col(node.name)
        if isinstance(node, Constant):
            return pl.lit(node.value)
        return _OPERATIONS[node.function](*(of(each) for each in node.arguments))

    made, column = of(expression), expression.name if isinstance(expression, Field) else None
    return Evaluable(
        lambda frame: frame.select(made.alias("x")).to_series(), fields(expression), expression.type, column
    )


def window(stream, kind):
    """Return a relation and its SQL at $tau."""
    node = WindowOver(stream, kind)
    time, key = stream.event_time, stream.key[0]
    plain = f"SELECT {', '.join(stream.schema.names)} FROM {stream.name} WHERE "
    alive = f"NOT dead AND {time} <= $tau AND "
    last = lambda slide: f"(($tau // {slide}) * {slide})"  # noqa: E731
    match kind:
        case TimeRange(size, None):
            return node, plain + alive + f"{time} > $tau - {size}"
        case TimeRange(None, slide):
            return node, plain + alive + f"{time} <= {last(slide)}"
        case TimeRange(size, slide):
            return node, plain + alive + f"{time} <= {last(slide)} AND {time} > {last(slide)} - {size}"
        case Hop(size, slide, False):
            return node, plain + alive + f"{time} < {last(slide)} AND {time} >= {last(slide)} - {size}"
        case Now():
            return node, plain + alive + f"{time} = $tau"
        case UnboundedWindow():
            return node, plain + alive + "true"
        case RowWindow(n, partition, _, slide):
            by = f"PARTITION BY {', '.join(partition)} " if partition else ""
            number = f"ROW_NUMBER() OVER ({by}ORDER BY {time}, seq) - COUNT(*) OVER ({by}) // {slide} * {slide}"
            return node, plain + alive + f"true QUALIFY {number} BETWEEN 1 - {n} AND 0"
        case Latest():
            rank = f"ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY {time} DESC, seq DESC)"
            newest = f"(SELECT * FROM {stream.name} WHERE {time} <= $tau QUALIFY {rank} = 1)"
            return node, f"SELECT {', '.join(stream.schema.names)} FROM {newest} WHERE NOT dead"
    raise AssertionError(kind)


WINDOWS = (
    TimeRange(3), TimeRange(7), TimeRange(6, 4), TimeRange(8, 2), Hop(6, 3), Hop(4, 4), Now(), UnboundedWindow(),
    RowWindow(1), RowWindow(3), RowWindow(2, ("key",)), RowWindow(1, ("key",)), Latest(), TimeRange(None, 5),
    RowWindow(3, slide=2), RowWindow(3, ("key",), slide=2), RowWindow(1, ("key",), slide=3),
)  # fmt: skip


@st.composite
def windows(draw, stream):
    kind = draw(st.sampled_from(WINDOWS))
    if isinstance(kind, RowWindow) and kind.partition:
        kind = replace(kind, partition=stream.key)
    return window(stream, kind)


@dataclass
class Arrivals:
    """Rows in the order in which they arrive, cut into steps, each with its low-watermark."""

    steps: list[tuple[dict[str, list[tuple]], int]]
    rows: dict[str, list[tuple]] = field(default_factory=dict)


_TIMES = st.integers(0, 24)
_KEYS = st.sampled_from(["a", "b", "c", None])
_VALUES = st.sampled_from([0, 1, 2, 5, None])


@st.composite
def arrivals(draw, most=14):
    """Rows of both streams in any order within the low-watermark, in any split."""
    one = st.tuples(st.sampled_from(["s", "r"]), _TIMES, _KEYS, _VALUES, st.sampled_from([False] * 5 + [True]))
    drawn = draw(st.lists(one, max_size=most))
    waiting = [(name, (time, key, value, number, dead)) for number, (name, time, key, value, dead) in enumerate(drawn)]
    rows = {name: [row for of, row in waiting if of == name] for name in ("s", "r")}
    waiting = draw(st.permutations(waiting))
    steps, bound = [], -2
    while waiting:
        size = draw(st.integers(0, len(waiting)))
        now, waiting = waiting[:size], waiting[size:]
        least = min((row[0] for _, row in waiting), default=END)
        bound = max(bound, draw(st.integers(-1, least)))
        steps.append(({name: [row for of, row in now if of == name] for name in ("s", "r")}, bound))
        if size == 0 and len(steps) > 6:
            steps.append(({name: [row for of, row in waiting if of == name] for name in ("s", "r")}, bound))
            break
    steps.append(({"s": [], "r": []}, draw(st.sampled_from([END, HIGHEST]))))
    return Arrivals(steps, rows)


def frame(stream, rows):
    names = [*stream.schema.names, SEQUENCE, TOMBSTONE]
    kinds = [pl.Int64, pl.Utf8, pl.Int64, pl.Int64, pl.Boolean]
    return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")


def frames(rows):
    return {"s": frame(S, rows["s"]), "r": frame(R, rows["r"])}


def rows_of_s(*times):
    """Return rows of one key, whose values are their times."""
    return {"s": frame(S, [(time, "a", time, number, False) for number, time in enumerate(times)])}


def added(plans, store, **options):
    """Return an evaluation of queries."""
    evaluation = Evaluation(store, compiled, **options)
    for name, plan in plans.items():
        evaluation.add(name, plan)
    return evaluation


def evaluated(plans, steps, restart=True, stored=None):
    """Return each query's changes of all steps; each step continues from what the one before saved.

    Stored relations come in the first step.
    """
    store, found = DictStore(), {name: [] for name in plans}
    evaluation = None
    for rows, bound in steps:
        if evaluation is None or restart:
            evaluation = added(plans, store)
        first, stored = stored or {}, None
        outcome = evaluation.step({**frames(rows), **first}, bound)
        assert not outcome.late
        assert not outcome.failed, outcome.failed
        for name, changes in outcome.changes.items():
            found[name].append(changes)
        evaluation.save()
    return {name: pl.concat(changes) for name, changes in found.items()}, store


def at(changes, tau):
    """Return how many of each row there are at a time."""
    counts = Counter()
    for *row, time, weight in changes.rows():
        if time <= tau:
            counts[tuple(_plain(value) for value in row)] += weight
    return Counter({row: count for row, count in counts.items() if count})


def steps_of(changes):
    """Return the changes as a multiset, whatever their order: one entry for each row and time."""
    counts = Counter()
    for *row, time, weight in changes.rows():
        counts[(*(_plain(value) for value in row), time)] += weight
    return counts


class Database:
    """All rows, in DuckDB."""

    def __init__(self, rows):
        self.connection = duckdb.connect()
        self.connection.execute("SET threads = 1")
        for stream in (S, R):
            time, key, value = stream.schema.names
            columns = f"{time} BIGINT, {key} VARCHAR, {value} BIGINT, seq BIGINT, dead BOOLEAN"
            self.connection.execute(f"CREATE TABLE {stream.name} ({columns})")
            if rows[stream.name]:
                self.connection.executemany(f"INSERT INTO {stream.name} VALUES (?, ?, ?, ?, ?)", rows[stream.name])

    def at(self, sql, tau):
        found = self.connection.execute(sql.replace("$tau", str(tau))).fetchall()
        return Counter(tuple(_plain(value) for value in row) for row in found)


def _plain(value):
    if isinstance(value, float):
        return round(value, 7)
    if isinstance(value, list):
        return tuple(sorted(value))
    return value


def check(plan, sql, given, taus=None, stored=None):
    """The relation at each time is what the query over the rows up to it gives, for this arrival and for another."""
    found, store = evaluated({"q": plan}, given.steps, stored=stored)
    database = Database(given.rows)
    changes = found["q"]
    if taus is None:  # where it changes, and some times besides
        taus = sorted({*range(-1, END, 5), *(time for time in changes[TIME] if 0 <= time < END)})
    for tau in taus:
        assert at(changes, tau) == database.at(sql, tau), (tau, given)
    in_order = {name: sorted(rows, key=lambda row: (row[0], row[3])) for name, rows in given.rows.items()}
    at_once, _ = evaluated({"q": plan}, [(in_order, given.steps[-1][1])], stored=stored)
    assert steps_of(changes) == steps_of(at_once["q"])
    json.loads(store.values["head", 0])
    return store
