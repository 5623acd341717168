import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upstream.core.rows.exact_integers import LOWEST
from upstream.core.rows.frames import split_punctuation
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_field
from upstream.operators.joins.plan import JoinSide
from upstream.operators.joins.side import JoinProgress
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.state.store import DictStore

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDES = JoinSide(("k",), "t", SCHEMA), JoinSide(("k",), "t", SCHEMA)


def punctuation(feed, bound, **columns):
    return punctuation_rows(SCHEMA, [feed], 0, t=pa.array([bound]), **{n: pa.array([v]) for n, v in columns.items()})


def restarted(progress, store=None):
    return JoinProgress(SIDES, json.loads(json.dumps(progress.to_json())), store or DictStore())


def test_the_slowest_input_partition_bounds_its_side_alone():
    progress = JoinProgress(SIDES, {}, DictStore())
    progress.hear(0, pa.concat_tables([punctuation("a", 7), punctuation("b", 3)]))
    progress.hear(1, punctuation("c", 9))
    assert (progress.bound(0), progress.bound(1)) == (3, 9)
    assert progress.figures["bounds"] == {"a": 7, "b": 3, "c": 9}
    progress.hear(0, punctuation("b", 8))
    assert progress.bound(0) == 7


def test_punctuation_of_one_key_raises_the_bound_of_that_key_alone():
    store = DictStore()
    progress = JoinProgress(SIDES, {}, store)
    progress.hear(0, pa.concat_tables([punctuation("a", 7, k=1), punctuation("a", 2)]))
    assert progress.bound(0) == 2
    raised = progress.raised(0)
    assert (raised.keys.to_pydict(), raised.after.tolist()) == ({"k": [1]}, [7])
    rows = pa.table({"key": pa.array([1, 2, None])})
    progress.save()
    for each in (progress, restarted(progress, store)):
        assert each.own_bounds(0, rows, ["key"]).tolist() == [7, LOWEST, LOWEST]
        assert each.own_bounds(1, rows, ["key"]).tolist() == [LOWEST] * 3
    assert progress.late(0, pa.table({"k": [1, 1, 2, 2]}), np.array([6, 7, 1, 2])) == 2


def test_punctuation_of_an_update_key_that_does_not_cover_the_join_says_nothing_of_it():
    schema = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
    for key, given, bounds in (
        (("k",), {"k": 1}, []),  # no value to join by
        (("k",), {"k": 1, "r": 3}, []),  # rows with r = 3 and another key may come
        (("k", "r"), {"k": 1, "r": 3}, []),
        (("k", "r"), {"r": 3}, [9]),
        (("r",), {"r": 3}, [9]),
    ):
        side = JoinSide(("r",), "t", schema, key)
        progress = JoinProgress((side, side), {}, DictStore())
        columns = {name: pa.array([value]) for name, value in given.items()}
        progress.hear(0, punctuation_rows(schema, ["a"], 0, t=pa.array([9]), **columns))
        assert progress.bound(0) == LOWEST
        raised = progress.raised(0)
        assert ([] if raised is None else raised.after.tolist()) == bounds


def test_a_restart_keeps_bounds_and_what_was_promised():
    progress = JoinProgress(SIDES, {}, DictStore())
    progress.hear(0, punctuation("a", 7))
    progress.promise(5, SCHEMA, "t", 1)
    again = restarted(progress)
    assert (again.bound(0), again.bound(1), again.promised) == (7, LOWEST, 5)
    assert again.to_json() == progress.to_json()


def test_a_bound_is_promised_once_under_the_shards_name():
    progress = JoinProgress(SIDES, {}, DictStore(), 2, 4)
    assert progress.promised == LOWEST
    assert progress.promise(LOWEST, SCHEMA, "t", 1) == []
    [given] = progress.promise(5, SCHEMA, "t", 77)
    rows, found = split_punctuation(given)
    assert (rows.num_rows, found.num_rows) == (0, 1)
    assert found.column("t").to_pylist() == [5]
    assert system_field(found, "source").to_pylist() == ["join/2"]
    assert pc.cast(system_field(found, "arrival"), pa.int64()).to_pylist() == [77]
    assert progress.promise(5, SCHEMA, "t", 78) == []
    assert progress.promise(4, SCHEMA, "t", 78) == []
    assert progress.promised == 5
