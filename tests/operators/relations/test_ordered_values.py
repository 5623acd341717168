"""Percentiles, modes and lists of groups whose rows come and leave."""

import json
import math
from collections import Counter
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.relations.aggregate import AggregateOperator
from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.functions import AggregateCall
from upstream.operators.relations.operator import Evaluable
from upstream.operators.relations.zsets import TIME, WEIGHT, Span
from upstream.operators.state import key_runs
from upstream.operators.state.store import DictStore

DOUBLE, PAIR = pa.float64(), pa.struct([("a", pa.int64())])
SHARES = {"median": 0.5, "percentile": 0.9, "percentile_disc": 0.9}
LISTS = {"collect_set": (), "collect_list": ((True, True), (True, True)), "mode": ()}


class ReadCounts(DictStore):
    """A store that counts the bytes read from it."""

    read = 0

    def get(self, kind, page):
        value = super().get(kind, page)
        self.read += len(value or b"")
        return value


class Percentiles:
    """The percentiles of a relation (g, v) by g, over steps that each continue from what the one before saved."""

    def __init__(self, kind=DOUBLE, by=pa.int64(), store=None, lists=True):  # noqa: B008
        self.store, self.saved, self.by = store or DictStore(), {}, by
        self.schema = pa.schema([("g", by), ("v", kind)])
        v = Evaluable(lambda frame: frame.get_column("v"), frozenset("v"), kind)
        size = Evaluable(lambda frame: frame.get_column("v").cast(pl.Float64).abs(), frozenset("v"), DOUBLE)
        self.calls = [AggregateCall(name, name, (v,), DOUBLE, share=share) for name, share in SHARES.items()]
        # Every percentile of values in descending order is one in ascending order, of the other share.
        self.calls.append(AggregateCall("down", "percentile_disc", (v,), kind, share=0.25, order=((True, True),)))
        types = [pa.list_(kind), pa.list_(kind), kind]
        self.calls += [
            AggregateCall(name, name, (v, size)[: len(order) or 1], result, order=order)
            for (name, order), result in zip(LISTS.items(), types if lists else (), strict=lists)
        ]
        self.results = pa.schema([("g", by), *((each.name, each.type) for each in self.calls)])
        self.found, self.time = Counter(), 0

    def step(self, changes, *, all_=True, net=False):
        """Changes (group, value, weight, time after the last step); return the changes and, if wanted, the contents."""
        state = OperatorState(self.store, "q", json.loads(json.dumps(self.saved)))
        g = Evaluable(lambda frame: frame.get_column("g"), frozenset("g"), self.by)
        operator = AggregateOperator(self.results, [("g", g)], self.calls, state)
        groups = [{"a": change[0]} if self.by == PAIR else change[0] for change in changes]
        rows = pl.from_arrow(pa.table([pa.array(groups, self.by), [c[1] for c in changes]], schema=self.schema))
        times = pl.Series(TIME, [self.time + 1 + change[3] for change in changes], pl.Int64)
        delta = rows.with_columns(times, pl.Series(WEIGHT, [change[2] for change in changes], pl.Int64))
        found = operator.step([delta], Span.first(self.time + 20)._replace(net=net))
        self.time += 20
        self.saved, self.rows = state.to_json(), state.rows
        if not all_:
            return found, None
        contents = operator.contents()
        for *row, time, weight in found.rows():
            self.found[repr((time, *row))] += weight
        return found, Counter({repr(tuple(row)): weight for *row, _, weight in contents.rows()})


def expected(values):
    """The aggregates by Spark's definitions."""
    values = sorted((value for value in values if value is not None), key=lambda each: (each != each, each))
    if not values:
        return [None, None, None, None, [], [], None]
    found = []
    for share in (0.5, 0.9):
        at = (len(values) - 1) * share
        low, high = float(values[math.floor(at)]), float(values[math.ceil(at)])
        found.append(low if low == high else (math.ceil(at) - at) * low + (at - math.floor(at)) * high)
    found.append(float(values[math.ceil(len(values) * 0.9) - 1]))
    found.append(values[::-1][math.ceil(len(values) * 0.25) - 1])
    counts = Counter(map(repr, values))
    mode = next(value for value in values if counts[repr(value)] == max(counts.values()))
    by_size = sorted(values, key=lambda each: (each != each, abs(each), (each != each, each)), reverse=True)
    return [*found, list(dict.fromkeys(values)), by_size, mode]


VALUES = {
    DOUBLE: st.sampled_from([None, math.nan, math.inf, -math.inf, 0.1]) | st.integers(-40, 40).map(lambda n: n / 7),
    pa.int64(): st.none() | st.integers(-30, 30),
    pa.decimal128(30, 2): st.integers(-30, 30).map(lambda n: Decimal(n).scaleb(-2)),
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data(), by=st.sampled_from([pa.int64(), PAIR]), rows=st.sampled_from([1, 3]), lists=st.booleans())
def test_percentiles_and_lists_are_those_of_the_rows_that_are_there(kind, data, by, rows, lists):
    relation, there = Percentiles(kind, by, lists=lists), []
    given = VALUES[kind]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_runs, "ROWS_OF_BUCKET", rows)
        for _ in range(data.draw(st.integers(1, 6))):
            added = data.draw(st.lists(st.tuples(st.integers(0, 2), given, st.integers(0, 3)), max_size=40))
            left = data.draw(st.sampled_from([0, 1, len(there) // 2, len(there)]))
            gone = data.draw(st.permutations(there))[:left]
            changes = [(g, v, 1, t) for g, v, t in added] + [(g, v, -1, 4 + n % 3) for n, (g, v) in enumerate(gone)]
            before, start = list(there), relation.time
            net = data.draw(st.booleans())
            found, contents = relation.step(changes, net=net)
            assert all(start < time < start + 8 or net for time in found[TIME])
            for g, v, weight, _ in changes:
                there.append((g, v)) if weight > 0 else there.remove((g, v))
            assert contents == counted(relation, there)
            for offset in [19] if net else range(7):
                now = list(before)
                for g, v, weight, after in changes:
                    if after <= offset:
                        now.append((g, v)) if weight > 0 else now.remove((g, v))
                assert relation_at(relation, start + 1 + offset) == counted(relation, now)


def counted(relation, there):
    groups = {}
    for g, v in there:
        groups.setdefault(g, []).append(v)
    named = [({"a": g} if relation.by == PAIR else g, values) for g, values in groups.items()]
    return Counter(repr((g, *expected(values)[: len(relation.calls)])) for g, values in named)


def relation_at(relation, time):
    counts = Counter()
    for text, weight in relation.found.items():
        at, _, row = text[1:].partition(", ")
        counts["(" + row] += weight if int(at) <= time else 0
    return Counter({row: weight for row, weight in counts.items() if weight})


def values_of(values, weight):
    return [(1, float(value), weight, 0) for value in values]


def test_a_change_in_a_large_group_reads_about_the_root_of_what_the_group_holds():
    size, store = 100_000, ReadCounts()
    relation = Percentiles(store=store, lists=False)
    values = np.random.default_rng(1).permutation(size)
    relation.step(values_of(values, 1), all_=False)
    whole = sum(map(len, store.values.values()))
    for gone in range(1, 4):
        before = store.read
        found, _ = relation.step(values_of(values[gone - 1 : gone], -1), all_=False)
        assert found.filter(pl.col(WEIGHT) > 0)["median"].to_list() == [np.median(values[gone:])]
        assert (store.read - before) * size < 25 * math.sqrt(size) * whole


def test_a_group_that_shrinks_keeps_few_buckets(monkeypatch):
    monkeypatch.setattr(key_runs, "ROWS_OF_BUCKET", 4)
    relation = Percentiles(lists=False)
    relation.step(values_of(range(2000), 1))
    values = np.random.default_rng(1).permutation(2000)
    for some in np.split(values[:1900], 19):
        relation.step(values_of(some, -1))
    assert relation.rows < 140


def test_groups_that_share_places_keep_their_values(monkeypatch):
    monkeypatch.setattr(key_runs, "ROWS_OF_BUCKET", 1)
    relation = Percentiles(by=PAIR, lists=False)
    for group in range(3):
        _, contents = relation.step([(group, float(value), 1, 0) for value in range(20)])
    there = [(group, float(value)) for group in range(3) for value in range(20)]
    assert contents == counted(relation, there)
    _, contents = relation.step([(0, 0.5, 1, 0), (1, 18.5, 1, 0)])
    assert contents == counted(relation, [*there, (0, 0.5), (1, 18.5)]) == relation_at(relation, relation.time)
