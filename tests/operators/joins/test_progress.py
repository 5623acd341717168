"""Progress of both sides of a join: each input partition counts, and promises rise only."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from upstream.core.rows.exact_integers import LOWEST
from upstream.core.rows.split import split_punctuation
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_field
from upstream.operators.joins.plan import JoinSide
from upstream.operators.joins.progress import JoinProgress
from upstream.operators.runtime.feeds import punctuation_rows

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDES = JoinSide(("k",), "t", SCHEMA), JoinSide(("k",), "t", SCHEMA)


def punctuation(feed, bound, **columns):
    return punctuation_rows(SCHEMA, [feed], 0, t=pa.array([bound]), **{n: pa.array([v]) for n, v in columns.items()})


def restarted(progress):
    return JoinProgress(SIDES, json.loads(json.dumps(progress.to_json())))


def test_a_side_without_punctuation_has_the_lowest_bound():
    progress = JoinProgress(SIDES, {})
    assert (progress.bound(0), progress.bound(1), progress.promised) == (LOWEST, LOWEST, LOWEST)


def test_the_slowest_input_partition_bounds_its_side_alone():
    progress = JoinProgress(SIDES, {})
    progress.hear(0, pa.concat_tables([punctuation("a", 7), punctuation("b", 3)]))
    progress.hear(1, punctuation("c", 9))
    assert (progress.bound(0), progress.bound(1)) == (3, 9)
    assert progress.bounds == {"a": 7, "b": 3, "c": 9}
    progress.hear(0, punctuation("b", 8))
    assert progress.bound(0) == 7


def test_punctuation_of_one_key_raises_no_bound():
    progress = JoinProgress(SIDES, {})
    progress.hear(0, punctuation("a", 7, k=1))
    assert progress.bound(0) == LOWEST


def test_a_restart_keeps_bounds_and_what_was_promised():
    progress = JoinProgress(SIDES, {})
    progress.hear(0, punctuation("a", 7))
    progress.promise(5, SCHEMA, "t", 2, 1)
    again = restarted(progress)
    assert (again.bound(0), again.bound(1), again.promised) == (7, LOWEST, 5)
    assert again.to_json() == progress.to_json()


def test_a_bound_is_promised_once_under_the_shards_name():
    progress = JoinProgress(SIDES, {})
    assert progress.promise(LOWEST, SCHEMA, "t", 2, 1) == []
    [given] = progress.promise(5, SCHEMA, "t", 2, 77)
    rows, found = split_punctuation(given)
    assert (rows.num_rows, found.num_rows) == (0, 1)
    assert found.column("t").to_pylist() == [5]
    assert system_field(found, "source").to_pylist() == ["join/2"]
    assert pc.cast(system_field(found, "arrival"), pa.int64()).to_pylist() == [77]
    assert progress.promise(5, SCHEMA, "t", 2, 78) == []
    assert progress.promise(4, SCHEMA, "t", 2, 78) == []
    assert progress.promised == 5
