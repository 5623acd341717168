"""The parts of an operator's state: found again, kept apart, and removed."""

import json

import numpy as np
import polars as pl
import pyarrow as pa

from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.zsets import TIME
from upstream.operators.state.store import DictStore

SCHEMA = pa.schema([(TIME, pa.int64())])
ROWS = pl.DataFrame({TIME: range(3000)})


def filled(state):
    arrangement = state.arrangement("a", SCHEMA)
    numbers = ROWS[TIME].to_numpy()
    arrangement.read(numbers)
    arrangement.write(ROWS, numbers)
    state.pending("p", SCHEMA).add(ROWS)
    return arrangement


def test_parts_are_found_again_and_are_kept_apart():
    store = DictStore()
    state = OperatorState(store, "o", {})
    state.values["n"] = 4
    filled(state)
    filled(state.within("inner"))
    assert state.rows == 12_000
    again = OperatorState(store, "o", json.loads(json.dumps(state.to_json())))
    assert again.values == {"n": 4}
    assert again.within("inner").arrangement("a", SCHEMA).read_all().height == 3000
    assert again.pending("p", SCHEMA).all().height == 3000
    assert OperatorState(store, "other", {}).arrangement("a", SCHEMA).read(np.arange(3000)).height == 0


def test_all_parts_are_removed_whether_this_process_has_used_them_or_not():
    store = DictStore()
    state = OperatorState(store, "o", {})
    filled(state)
    filled(state.within("inner"))
    other = OperatorState(store, "other", {})
    filled(other)
    saved = state.to_json()
    before = len(store.values)
    half = OperatorState(store, "o", saved)
    half.arrangement("a", SCHEMA)
    half.clear()
    assert {kind for kind, _ in store.values} == {"other.a/0", "other.p"}
    assert len(store.values) == before / 3
