"""Windows by other columns than the update key, against windows computed row by row."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.windows.kinds import SlideByTupleWindows, SlidingWindows

from .drawn import END, METHODS, any_batches, any_windows, everything, plan_of, promised, told
from .windows_of import Run, in_windows, punctuation_table, rows_table


def by(plan, *columns):
    return dataclasses.replace(plan, key=columns, update_key=plan.key)


def results(run, *columns, final=False):
    rows = [each for each in run.results if each["final"] or not final]
    found = {(tuple(each[name] for name in columns), each["window_id"]): each["total"] for each in rows}
    assert len(found) == len(rows), "a window closes once"
    return found


@given(
    any_windows().filter(lambda each: not isinstance(each, SlideByTupleWindows)),
    any_batches(),
    METHODS,
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_each_group_has_windows_of_its_own(windows, batches, method, finer, tasks):
    columns = ("key", "v") if finer else ("v",)
    run = Run(by(plan_of(windows, method=method), *columns)).batches(batches, tasks)
    groups = sorted({(key, value) if finer else (value,) for key, _, value in everything(batches)})
    rows = [
        (groups.index((key, value) if finer else (value,)), time, value) for key, time, value in everything(batches)
    ]
    expected = {(groups[at], wid): sum(values) for (at, wid), values in in_windows(windows, rows, END).items()}
    assert results(run, *columns) == expected


def test_punctuation_of_one_update_key_closes_no_group_across_keys():
    """It says nothing of the other keys in the group, and its feed has promised nothing for them."""
    run = Run(by(plan_of(SlidingWindows(10, 10)), "v"))
    run.tables(rows_table([(1, 1, 7), (2, 2, 7)], 1), punctuation_table(50, 1, key=1))
    assert (run.results, run.of_keys, run.reports[-1].bound) == ([], [], None)
    run.tables(punctuation_table(10, 2))
    assert sum(each["total"] for each in run.results) == 14


def test_punctuation_of_one_update_key_closes_all_of_its_groups():
    run = Run(by(plan_of(SlidingWindows(10, 10)), "key", "v"))
    run.tables(rows_table([(1, 1, 7), (1, 2, 8), (2, 2, 7)], 1), punctuation_table(50, 1, key=1))
    assert sorted((each["key"], each["v"]) for each in run.results) == [(1, 7), (1, 8)]
    assert run.reports[-1].bound is None
    # Other groups of the key may be in other shards: each promises for its own part.
    assert sorted((each["key"], each["v"], each["_upstream"]["source"]) for each in run.of_keys) == [
        (1, None, f"window/{shard}") for shard in range(3)
    ]
    run.tables(punctuation_table(10, 2))
    assert [(each["key"], each["v"]) for each in run.results[2:]] == [(2, 7)]


@given(any_windows(), any_batches(), METHODS, st.sampled_from(["all", "all+early"]), st.booleans(), st.data())
def test_finer_groups_heed_punctuation_of_the_key_and_of_a_part_of_it(windows, batches, method, emit, wide, data):
    plan = dataclasses.replace(
        plan_of(windows, emit, method), key=("key", "v"), update_key=("key", "v") if wide else ("key",)
    )
    with_them, without = Run(plan), Run(plan)
    for number, (tables, claims) in enumerate(told(batches, data), 1):
        without.tables(*tables)
        with_them.tables(*tables, *promised(claims, number))
    assert results(with_them, "key", "v", final=True) == results(without, "key", "v", final=True)
    came, would_come = (
        {(each["key"], each["v"], each["window_id"]): each["batch"] for each in run.results if each["final"]}
        for run in (with_them, without)
    )
    assert all(came[each] <= batch for each, batch in would_come.items())
    assert sum(report.late for report in with_them.reports) == 0
