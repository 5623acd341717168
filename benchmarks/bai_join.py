"""A window join of a busy and a sparse stream in the order of time (Bai et al. §4.2), by how it hears of silence.

The setting is that of figures 7 and 8, with a join in place of the union: rows of 50 and 0.05 a second, stamped on
entry, in batches of a fifth of a second. The join's shard runs, as in a query: rows wait in it for the other input
(``release="sync"``), it reports what would let them go, and the classes of the source promise that for the silent one.
The same join in SQL runs on the stages that host queries, and their reports take that way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tests.kit.local_host import LocalHost
from upstream.core.feedback.on_demand_watermark import OnDemandWatermark
from upstream.core.rows.frames import split_punctuation, to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, TIMESTAMP, system_array
from upstream.core.watermark.bounds import AFTER_ALL
from upstream.core.watermark.policies import FeedProgress, Policy
from upstream.hosting.journal import Settings
from upstream.hosting.messages import Command
from upstream.hosting.output import result_rows
from upstream.hosting.registry import RegisteredQuery, Registry
from upstream.language import Catalog, bind
from upstream.operators.joins.band import SIDES, IntervalBand
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.release.choice import ReleasePlan
from upstream.operators.joins.shard import JoinShard
from upstream.operators.relations.plan.nodes import Stream
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.state.store import DictStore, read_head

from .bai import COST_US, PASSES, RATES
from .shapes import Curve, Figure, Panel
from .simulator import Estimate, estimate

__all__ = ["figure_join"]

_S = 1_000_000
_BATCH_US = 200_000
_WINDOW_US = 5 * _S
_KEYS = 20
_SCHEMA = pa.schema([("key", pa.int64()), ("at", TIMESTAMP), ("row", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
_SIDE = JoinSide(("key",), "at", _SCHEMA)
_PLAN = JoinPlan(_SIDE, _SIDE, IntervalBand(_WINDOW_US, _WINDOW_US), release=ReleasePlan("sync"))
_NAMES = ("busy", "sparse")
_RANGE = f"[RANGE {_WINDOW_US + 1} MICROSECONDS]"
_SQL = f"""
ISTREAM(SELECT b.`row`, s.`row` AS row_right
        FROM busy {_RANGE} AS b JOIN sparse {_RANGE} AS s ON b.`key` = s.`key`)
"""
_FEEDS = tuple(f"{side}/{feed}" for side, feed in zip(SIDES, RATES, strict=True))


@dataclasses.dataclass(frozen=True)
class JoinOutcome:
    """Of one run.

    Attributes
    ----------
    latency_ms : float
        From a row's entry until it has met its partners, on average.
    idle : float
        % of the time in which the join holds rows and waits for an input.
    peak : float
        The most rows that wait after a batch, and punctuations in it.
    results : list of (int, int)
        The numbers of the rows of each pair.
    punctuation_without_rows : int
        How often the join passed punctuation on in a batch that had no row for it (Fig. 6).
    """

    latency_ms: float
    idle: float
    peak: float
    results: list[tuple[int, int]]
    punctuation_without_rows: int


def batches(seed: int, seconds: float) -> Iterator[tuple[int, list[pa.Table]]]:
    """Yield batches: the clock, and the rows of both inputs that pass the filters, stamped with it."""
    random = np.random.default_rng(seed)
    edges = np.arange(0, round(seconds * _S) + 1, _BATCH_US)
    counts = [
        np.histogram(np.cumsum(random.exponential(_S / (rate * PASSES), round(1.3 * rate * seconds) + 50)), edges)[0]
        for rate in RATES.values()
    ]
    given = [0, 0]
    for at, numbers in enumerate(zip(*counts, strict=True)):
        clock, tables = int(edges[at + 1]), []
        for side, n in enumerate(int(each) for each in numbers):
            rows = np.arange(given[side], given[side] + n)
            given[side] += n
            system = system_array(source=_FEEDS[side], seq=rows, arrival_us=np.full(n, clock))
            stamps = pa.array(np.full(n, clock)).view(TIMESTAMP)
            keys = pa.array(random.integers(0, _KEYS, n))
            tables.append(pa.table([keys, stamps, pa.array(rows), system], schema=_SCHEMA))
        yield clock, tables


class ShardJoin:
    """The fluent join's shard."""

    def __init__(self) -> None:
        self._store = DictStore()

    def batch(self, tables: Sequence[pa.Table]) -> tuple[pa.Table | None, int, int]:
        """Run a batch; return what leaves it, how many rows wait in it, and what it needs, or 0."""
        result, report = JoinShard(0, _PLAN, self._store).run(*([to_frame(each)] for each in tables))
        return result, report.queued + report.held, report.needs or 0


class SqlJoin:
    """The join as a hosted query, of which each result has the time of the later row."""

    def __init__(self) -> None:
        schema = pa.schema(list(_SCHEMA)[:-1])
        streams = tuple(Stream(name, schema, event_time="at") for name in _NAMES)
        catalog = Catalog({each.name: each for each in streams})
        query = RegisteredQuery(1, "q", _SQL, 1.0, True, None, 1, "", bind(_SQL, catalog))
        registry = Registry(1, catalog, {"q": query}, Settings("", 1, streams))
        self._host = LocalHost(lambda _: registry, 1)
        self._number = 0
        self._stamps = np.empty(0, dtype=np.int64)

    def batch(self, tables: Sequence[pa.Table]) -> tuple[pa.Table | None, int, int]:
        """See :meth:`ShardJoin.batch`. Nothing passes punctuation on, but to the tables' commits."""
        left = self._host.batch(
            Command(self._number, 1), {name: [table] for name, table in zip(_NAMES, tables, strict=True)}
        )
        self._number += 1
        frames = [each.frame for each in left if each.leaving.kind == "rows" and each.frame is not None]
        parts = [[_micros(one) for one in split_punctuation(each)] for each in tables]
        self._stamps = np.concatenate([self._stamps, *(rows for rows, _ in parts)])
        self._stamps = self._stamps[self._stamps >= min(int(bounds[-1]) for _, bounds in parts)]
        needs = [read_head(store)["held"]["needs"] for store in (*self._host.first, *self._host.second)]
        found = result_rows(frames).rows if frames else None
        return found, len(self._stamps), min((each for each in needs if each is not None), default=0)


def _micros(rows: pa.Table) -> np.ndarray:
    return rows.column("at").cast(pa.int64()).fill_null(AFTER_ALL).to_numpy()


def run(seed: int, seconds: float, how: str, punctuations_per_second: float = 0.0, *, sql: bool = False) -> JoinOutcome:
    """Run one of ``none``, ``periodic`` or ``on demand``."""
    joined, results = SqlJoin() if sql else ShardJoin(), list[tuple[int, int]]()
    progress = [FeedProgress(Policy("arrival")) for _ in RATES]
    for each in progress:
        each.close_batch(0)
    heard, on_demand = [0, 0], OnDemandWatermark(internal=True)
    waiting = rows = peak = passed = 0
    area = idle = 0.0
    due = _S / punctuations_per_second if punctuations_per_second else np.inf
    last = 0

    def join(tables: Sequence[pa.Table], clock: int) -> int:
        """Run a batch of the shard; return what it needs, or 0."""
        nonlocal waiting, passed
        given: list[pa.Table] = []
        for side, table in enumerate(tables):
            bound = pa.array([None if (at := progress[side].bound) == AFTER_ALL else at], pa.int64()).view(TIMESTAMP)
            given.append(pa.concat_tables([table, punctuation_rows(_SCHEMA, [_FEEDS[side]], clock, at=bound)]))
        result, waiting, needs = joined.batch(given)
        if result is not None:
            found, punctuation = split_punctuation(result) if SYSTEM in result.column_names else (result, None)
            results.extend(zip(found["row"].to_pylist(), found["row_right"].to_pylist(), strict=True))
            passed += punctuation is not None and punctuation.num_rows > 0 and found.num_rows == 0
        return needs

    nothing = [_SCHEMA.empty_table()] * 2
    for clock, tables in batches(seed, seconds):
        area += waiting * (clock - last)
        idle += (clock - last) * (waiting > 0)
        last = clock
        punctuations = 0
        for side, table in enumerate(tables):
            rows += table.num_rows
            spoke = table.num_rows > 0 or (side == 1 and clock >= due)
            if spoke:
                progress[side].close_batch(clock)
                heard[side] = clock
            if side == 1 and clock >= due:
                punctuations = max(1, int((clock - due) // (_S / punctuations_per_second)) + 1)
                due += punctuations * _S / punctuations_per_second
        needs = join(tables, clock)
        peak = max(peak, waiting + punctuations)
        if how == "on demand" and needs:
            for side in (0, 1):  # each input is a source of its own, which looks at the same reports
                mine, spoke = {_FEEDS[side]: progress[side]}, {_FEEDS[side]: heard[side]}
                if on_demand.enable(mine, spoke, [needs], clock + COST_US):
                    # Until the timestamp has come through.
                    area += waiting * COST_US
                    idle += COST_US
                    peak = max(peak, waiting + 1)
                    join(nothing, clock)
    for each in progress:
        each.close()
    join(nothing, last)
    return JoinOutcome(area / rows / 1e3, 100 * idle / last, peak, sorted(results), passed)


def figure_join(quick: bool) -> Figure:
    """Show figures 7 and 8 with a join in place of the union."""
    seconds, seeds, rates = (80, 2, (0.1, 2)) if quick else (300, 3, (0.1, 0.3, 1, 2))
    runs = {how: [[run(seed, seconds, how) for seed in range(seeds)]] * len(rates) for how in ("none", "on demand")}
    runs["periodic"] = [[run(seed, seconds, "periodic", rate) for seed in range(seeds)] for rate in rates]

    def curves(what: str) -> dict[str, Curve]:
        def at(found: list[JoinOutcome]) -> Estimate:
            return estimate([getattr(each, what) for each in found])

        return {how: Curve(how, rates, [at(each) for each in runs[how]]) for how in runs}

    briefly = 20 if quick else 100
    for how in ("none", "on demand"):
        runs[f"SQL, {how}"] = [[run(0, briefly, how, sql=True)]] * len(rates)
    latency, idle, peak = (curves(what) for what in ("latency_ms", "idle", "peak"))
    differs: list[str] = []
    answers = runs["none"][0]
    if not all(answer.results for answer in answers):
        differs.append("nothing met")
    others = [*runs["periodic"], runs["on demand"][0]]
    if any([one.results for one in each] != [one.results for one in answers] for each in others):
        differs.append("the pairs depend on how the join hears of silence")
    pairs = run(0, briefly, "none").results
    if not all(one.results == pairs for how in ("none", "on demand") for one in runs[f"SQL, {how}"][0]):
        differs.append("in SQL the pairs are others")
    if not all(one.punctuation_without_rows for one in runs["on demand"][0]):
        differs.append("no punctuation passes where there is no row for it, against figure 6")
    none, periodic, demand = (latency[how].means for how in ("none", "periodic", "on demand"))
    if not none[0] > max(periodic) or not none[0] > 1000 * demand[0]:
        differs.append(f"latency without timestamps is {none[0]:.3g} ms, wanted orders above all else")
    if not min(periodic) > 10 * demand[0]:
        differs.append(f"periodic comes down to {min(periodic):.3g} ms, wanted well above on-demand's {demand[0]:.3g}")
    if idle["none"].means[0] < 95:
        differs.append(
            f"without timestamps the join waits {idle['none'].means[0]:.3g} % of the time, wanted nearly all"
        )
    if not 0 < idle["on demand"].means[0] < 0.1:
        differs.append(f"on demand it waits {idle['on demand'].means[0]:.3g} % of the time, wanted less than 0.1")
    slow, fast = (latency[f"SQL, {how}"].means[0] for how in ("none", "on demand"))
    if not slow > 1000 * fast:
        differs.append(
            f"in SQL the latency is {slow:.3g} ms without timestamps, {fast:.3g} ms with, wanted orders less"
        )
    if not 0 < idle["SQL, on demand"].means[0] < 0.1:
        differs.append(
            f"on demand, SQL waits {idle['SQL, on demand'].means[0]:.3g} % of the time, wanted less than 0.1"
        )
    most, least = peak["none"].means[0], peak["on demand"].means[0]
    if not most > 30 * least:
        differs.append(f"{most:.0f} rows wait without timestamps and {least:.0f} on demand, wanted far fewer")
    x = "punctuations per second"
    return Figure(
        "Window join of 50 and 0.05 rows/s in the order of time",
        [
            Panel("latency", x, "ms", list(latency.values()), log=True, log_x=True),
            Panel("idle-waiting", x, "% of the time", list(idle.values()), log=True, log_x=True),
            Panel("peak queue", x, "rows and punctuations", list(peak.values()), log=True, log_x=True),
        ],
        differs,
    )
