"""Groups whose values are kept, in buckets and without."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.aggregates.algebra import Aggregates
from upstream.operators.aggregates.functions import collect, min_
from upstream.operators.grouped.groups import GroupChanges, Members
from upstream.operators.joins.latest_plan import LatestSide
from upstream.operators.joins.side import numbers_of
from upstream.operators.state import key_runs
from upstream.operators.state.key_runs import buckets_for
from upstream.operators.state.store import DictStore

from .groups_of import DIFFERENTIAL, Query, batches, plan


@given(batches(60, 40))
def test_large_groups_in_buckets_are_no_different(given_batches):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_runs, "ROWS_OF_BUCKET", 2)
        query = Query(plan())
        for batch in given_batches:
            query.batch(batch)
            query.check()


def test_a_group_that_empties_keeps_no_values(monkeypatch):
    monkeypatch.setattr(key_runs, "ROWS_OF_BUCKET", 1)
    query = Query(plan())
    query.batch([(key, "x", 1, key, "a", False) for key in range(30)])
    query.batch([(key, None, 2, None, None, True) for key in range(30)])
    assert query.table == {}
    assert query.kinds() == {"head", "keys"}


def test_values_are_kept_only_where_an_aggregate_needs_them():
    query = Query(plan(aggregates=DIFFERENTIAL))
    query.batch([(1, "x", 1, 5, "a", False)])
    assert query.kinds() == {"head", "keys", "groups"}


def test_groups_without_aggregates_are_emitted_when_they_begin_and_end():
    query, emitted = Query(plan(aggregates={})), [0, 0]
    for changes, more in (
        ([(1, "x", 1, 5, "a", False), (2, "x", 1, 5, "a", False)], 1),
        ([(3, "x", 2, 5, "a", False), (2, "x", 2, 6, "b", False)], 0),
        ([(1, "y", 3, 5, "a", False)], 1),
        ([(2, None, 4, None, None, True), (3, None, 4, None, None, True)], 1),
    ):
        before = sum(emitted)
        for report in query.batch(changes):
            emitted[report.shard] = report.results
        assert sum(emitted) - before == more
    assert query.table.keys() == {"y"}


SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDE = LatestSide(("g",), "", SCHEMA, ("k",), None, ("v",))
ALGEBRA = Aggregates.of({"least": min_("v"), "all": collect("v", by=["v", "k"], limit=10_000)}, SCHEMA)


class Held:
    """Members over batches, with the number of buckets that each group is to have."""

    def __init__(self):
        self.store, self.saved = DictStore(), {}
        self.rows, self.bits = {}, {}

    def batch(self, changes, wanted):
        """Changes (key, group, value, or None to leave the group); return each group's least value and values."""
        groups = list(dict.fromkeys(change[1] for change in changes))
        schema = pa.schema([SCHEMA.field(name) for name in ("k", "g", "v")])
        columns = [pa.array([change[at] for change in changes], schema.field(at).type) for at in range(3)]
        rows = pa.table([*columns, pa.nulls(len(changes), SYSTEM_TYPE)], schema=SCHEMA)
        named = pa.table({"g": pa.array(groups, pa.string())})
        asked = GroupChanges(
            named,
            numbers_of(named, ("g",)),
            np.array([self.bits.get(group, 0) for group in groups], dtype=np.int64),
            np.array([wanted[group] for group in groups], dtype=np.int64),
            rows,
            np.array([groups.index(change[1]) for change in changes]),
            np.array([change[2] is None for change in changes]),
        )
        held = Members(self.store, "values", SIDE, ALGEBRA, self.saved)
        found = ALGEBRA.lower(held.changed(asked)).to_pylist()
        self.saved = held.to_json()
        self.bits.update(wanted)
        for key, group, value in changes:
            self.rows.pop((key, group), None)
            if value is not None:
                self.rows[key, group] = value
        return dict(zip(groups, found, strict=True))


CHANGES = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from("xyz"), st.none() | st.integers(-9, 9)),
    min_size=1, max_size=25, unique_by=lambda change: change[:2],
)  # fmt: skip


@given(st.lists(st.tuples(CHANGES, st.fixed_dictionaries(dict.fromkeys("xyz", st.integers(0, 4)))), max_size=7))
def test_any_number_of_buckets_gives_the_same_state(batches):
    held = Held()
    for changes, bits in batches:
        found = held.batch(changes, {change[1]: bits[change[1]] for change in changes})
        for group, result in found.items():
            values = sorted(value for (_, other), value in held.rows.items() if other == group)
            assert result == {"least": values[0] if values else None, "all": values}


def test_a_change_of_a_large_group_reads_few_of_its_rows(monkeypatch):
    held, read = Held(), []
    keys = range(20_000)
    bits = int(buckets_for(np.array([len(keys)]), np.array([0]))[0])
    held.batch([(key, "x", key) for key in keys], {"x": bits})
    lift = ALGEBRA.lift
    monkeypatch.setattr(ALGEBRA, "lift", lambda rows, *args: read.append(rows.num_rows) or lift(rows, *args))
    found = held.batch([(0, "x", None)], {"x": bits})["x"]
    assert found["least"] == 1
    assert 0 < read[0] < 600
