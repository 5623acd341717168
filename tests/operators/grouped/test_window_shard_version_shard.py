"""The newest rows of windows: what goes on to the groups, what is passed on, and what is refused."""

import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import SchemaError
from upstream.core.rows.frames import split_punctuation, to_frame
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.operators.grouped.window_shard import WindowVersionShard
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlidingWindows

from .window_rows import plan, rows, until

PLAN = plan(SlidingWindows(10, 5))


def run(store, table, number=0):
    return WindowVersionShard(number, PLAN, store).run([to_frame(table)])


def test_the_first_shard_passes_punctuation_on_and_the_others_do_not():
    for number, passed in ((0, 1), (1, 0)):
        result, _ = run(DictStore(), pa.concat_tables([rows(4), until(f=3)]), number)
        assert split_punctuation(result)[1].num_rows == passed


def test_what_it_keeps_goes_with_the_windows():
    store = DictStore()
    result, report = run(store, pa.concat_tables([rows(4), until(f=5)]))
    assert (result.num_rows, report.left_kept) == (3, 2)  # windows 0 and 1 share pages
    _, report = run(store, until(f=10))
    assert (report.left_kept, {kind for kind, _ in store.values}) == (0, {"head"})


def test_rows_that_stand_for_others_are_refused():
    several = system_array(source="f", seq=np.arange(1), arrival_us=np.arange(1), covered=np.array([2]))
    with pytest.raises(SchemaError, match="before the window represents several"):
        run(DictStore(), rows(4).set_column(3, SYSTEM, several))
