"""Streams of a relation: what came less what left adds up to it, and a stream may be windowed again."""

from collections import Counter

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.relations import changes
from upstream.operators.relations.plan.nodes import (
    Changes,
    GroupAggregates,
    Hop,
    Project,
    RowWindow,
    Sample,
    Session,
    TimeRange,
    UnboundedWindow,
    WindowOver,
)
from upstream.operators.relations.zsets import TIME, WEIGHT
from upstream.operators.state.store import DictStore

from .checking import END, Database, K, N, R, S, added, arrivals, at, evaluated, frame, rows_of_s, steps_of, windows

BY = (("k", K),)


@given(source=windows(S), given=arrivals())
def test_what_came_less_what_left_adds_up_to_the_relation(source, given):
    plan = GroupAggregates(source[0], BY, (N,))
    plans = {"q": plan, "came": Changes(plan, "istream"), "left": Changes(plan, "dstream")}
    found, _ = evaluated(plans, given.steps)
    assert (found["came"][WEIGHT] > 0).all()
    assert (found["left"][WEIGHT] > 0).all()
    difference = pl.concat([found["came"], found["left"].with_columns(-pl.col(WEIGHT))])
    database = Database(given.rows)
    for tau in range(END):
        expected = database.at(f"SELECT k, count(*) FROM ({source[1]}) GROUP BY k", tau)
        assert at(difference, tau) == expected == at(found["q"], tau)
    both = steps_of(found["came"]).keys() & steps_of(found["left"]).keys()
    assert not both, "no row comes and leaves at one time"


@pytest.mark.parametrize("every", [None, 3], ids=["at each change", "every 3"])
@given(source=windows(S), given=arrivals())
def test_all_rows_are_given_at_each_change_or_period(every, source, given):
    relation = Project(source[0], BY)
    found, _ = evaluated({"q": relation, "all": Changes(relation, "rstream", every)}, given.steps)
    database = Database(given.rows)
    # No later than there is something to come: an end of all input ends the periods.
    last = max(found["q"][TIME].to_list(), default=-1)
    for tau in range(min(END, last + 1)):
        expected = database.at(f"SELECT k FROM ({source[1]})", tau)
        if every is None and tau not in found["q"][TIME].to_list():
            expected = Counter()
        if every is not None and tau % every:
            expected = Counter()
        now = Counter()
        for key, time, weight in found["all"].rows():
            now[key,] += weight if time == tau else 0
        assert +now == expected, tau


@given(given=arrivals(), n=st.integers(1, 3))
def test_a_stream_of_changes_can_be_windowed_again(given, n):
    came = Changes(Project(WindowOver(S, TimeRange(4)), BY), "istream")
    plans = {"time": WindowOver(came, TimeRange(n)), "rows": WindowOver(came, RowWindow(n))}
    found, _ = evaluated({"came": came, **plans}, given.steps)
    at_once, _ = evaluated(plans, [({"s": given.rows["s"], "r": []}, given.steps[-1][1])])
    assert steps_of(found["rows"]) == steps_of(at_once["rows"])
    rows = [(key, time) for key, time, weight in found["came"].rows() for _ in range(weight)]
    for tau in range(END):
        assert at(found["time"], tau) == Counter((key,) for key, time in rows if tau - n < time <= tau)
        newest = sorted(
            (row for row in rows if row[1] <= tau), key=lambda row: (row[1], row[0] is not None, row[0] or "")
        )
        assert at(found["rows"], tau) == Counter((key,) for key, _ in newest[-n:])


@given(given=arrivals())
def test_a_sample_of_a_stream_of_changes_is_part_of_it_and_the_same_in_any_split(given):
    came = Changes(Project(WindowOver(S, TimeRange(4)), BY), "istream")
    plans = {
        "some": WindowOver(Sample(came, 50.0, 3), TimeRange(5)),
        "all": WindowOver(Sample(came, 100.0), TimeRange(5)),
    }
    found, _ = evaluated({**plans, "whole": WindowOver(came, TimeRange(5))}, given.steps)
    at_once, _ = evaluated(plans, [({"s": given.rows["s"], "r": []}, given.steps[-1][1])])
    assert steps_of(found["some"]) == steps_of(at_once["some"])
    assert steps_of(found["all"]) == steps_of(found["whole"])
    for tau in range(END):
        assert at(found["some"], tau) <= at(found["whole"], tau)


def test_a_period_that_ends_at_the_low_watermark_waits_for_the_next_step():
    evaluation = added({"q": Changes(WindowOver(S, TimeRange(100)), "rstream", 3)}, DictStore())
    assert evaluation.step(rows_of_s(3), 6).changes["q"].select("t", TIME).rows() == [(3, 3)]
    assert evaluation.step(rows_of_s(6), 7).changes["q"].select("t", TIME).rows() == [(3, 6), (6, 6)]


def test_wide_rows_are_given_in_short_spans_or_not_at_all():
    every = 10
    plan = Changes(WindowOver(S, TimeRange(100_000)), "rstream", every)
    evaluation = added({"all": plan}, DictStore())
    wide = {"s": frame(S, [(1, "x" * 1_000_000, 1, 1, False)]), "r": frame(R, [])}
    assert evaluation.reach(wide, {}, 9_000) == 1 + every, "the width is not known yet"
    evaluation.step(wide, 1 + every)
    bound = evaluation.reach({}, {}, 9_000)
    assert 1 + every < bound < 2_000, "about 256 MiB"
    both = added({"all": plan, "more": Changes(WindowOver(S, TimeRange(100_001)), "rstream", every)}, DictStore())
    both.step(wide, 1 + every)
    assert both.reach({}, {}, 9_000) - 1 - every < 0.6 * (bound - 1 - every), "the queries share them"
    assert evaluation.step({}, bound).failed == {}
    failed = evaluation.step({}, 90_000).failed["all"]
    assert "about 1000" in str(failed)


@pytest.mark.parametrize("every", [None, 1], ids=["at each change", "every 1"])
def test_each_of_equal_rows_takes_its_part_of_a_step(every, monkeypatch):
    monkeypatch.setattr(changes, "_MOST", 400)
    evaluation = added({"all": Changes(Project(WindowOver(S, TimeRange(100)), BY), "rstream", every)}, DictStore())
    evaluation.step(rows_of_s(*[1] * 100), 2)
    if every is not None:
        assert evaluation.reach({}, {}, 90) == 5, "three times 100 rows, not 200 times one"
    monkeypatch.setattr(changes, "_MOST_BYTES", 1_000)
    failed = evaluation.step(rows_of_s(*range(3, 60)), 90).failed["all"]
    assert "more than 4000 bytes" in str(failed)


def test_a_jump_with_too_many_results_fails_its_query_alone(monkeypatch):
    monkeypatch.setattr(changes, "_MOST", 10)
    monkeypatch.setattr(changes, "_MOST_STEPS", 3)
    plans = {
        name: Changes(WindowOver(S, TimeRange(length)), "rstream", 1) for name, length in (("all", 10**6), ("few", 5))
    }
    evaluation = added(plans, DictStore())
    evaluation.step(rows_of_s(1, 1), 2)
    failed, until = {}, 2
    while until < 1_000 and len(failed) < 2:
        until = evaluation.reach({}, {}, 1_000)
        failed |= evaluation.step({}, until).failed
    assert list(failed) == ["all"]
    assert "jump of event time" in str(failed["all"])
    evaluation = added(plans, DictStore())
    evaluation.step(rows_of_s(1, 1), 2)
    for until in range(3, 200):  # as much, but no jump
        assert evaluation.reach({}, {}, until) == until
        assert not evaluation.step({}, until).failed


def test_results_of_several_jumps_do_not_add_up(monkeypatch):
    monkeypatch.setattr(changes, "_MOST", 2)
    monkeypatch.setattr(changes, "_MOST_STEPS", 3)
    evaluation = added({"q": Changes(WindowOver(S, TimeRange(5)), "rstream", 1)}, DictStore())
    given, until = 0, 0
    for time in range(1, 1_000, 100):
        rows, wanted = {**rows_of_s(time), "r": frame(R, [])}, time + 90
        while until < wanted:
            until = evaluation.reach(rows, {}, wanted)
            outcome = evaluation.step(rows, until)
            assert not outcome.failed
            given += outcome.changes["q"].height
            rows = {}
    assert given == 50, "far more than one jump may have"


def evaluated_to_the_end(plans, rows):
    """Return all changes of queries whose input ends, and the number of steps."""
    evaluation, found, steps, low = added(plans, DictStore()), [], 0, None
    while low != HIGHEST:
        low = evaluation.reach(rows, {}, HIGHEST)
        outcome = evaluation.step(rows, low)
        assert not outcome.failed
        found.append(outcome.changes)
        rows, steps = {}, steps + 1
        assert steps < 60
    return {name: pl.concat([each[name] for each in found]) for name in plans}, steps


@pytest.mark.parametrize("size", [TimeRange(5), Hop(60, 60, columns=True), TimeRange(60, 20), Session(30, ("k",))])
def test_the_end_of_all_input_ends_an_empty_relation_s_periods(size):
    plan = Changes(WindowOver(S, size), "rstream", 60)
    found, steps = evaluated_to_the_end({"all": plan}, rows_of_s(10, 10**14 + 59))
    assert steps <= 5
    assert set(found["all"][TIME].to_list()) <= {60, 120, 10**14 // 60 * 60 + 60, 10**14 // 60 * 60 + 120}


def test_the_end_of_all_input_ends_the_periods_of_rows_that_stay():
    stays = Changes(WindowOver(S, UnboundedWindow()), "rstream", 60)
    again = Changes(WindowOver(stays, TimeRange(100)), "rstream", 7)
    found, steps = evaluated_to_the_end({"stays": stays, "again": again}, rows_of_s(10, 130))
    assert steps <= 5
    assert found["stays"].select("t", TIME).rows() == [(10, 60), (10, 120), (10, 180), (130, 180)]
    assert found["again"].select(pl.col(TIME).max()).item() == 273, "the row of 180 leaves at 280"


@given(source=windows(S), rows=st.lists(st.integers(0, 400), min_size=1, max_size=9))
def test_the_end_in_many_steps_is_the_end_in_one(source, rows):
    plans = {
        "each": Changes(source[0], "rstream", 3),
        "both": Changes(WindowOver(Changes(source[0], "rstream", 5), TimeRange(4)), "rstream", 3),
    }
    at_once, _ = evaluated(plans, [({"s": rows_of_s(*rows)["s"].rows(), "r": []}, HIGHEST)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "_MOST", 400)
        found, _ = evaluated_to_the_end(plans, rows_of_s(*rows))
    assert {name: steps_of(each) for name, each in found.items()} == {
        name: steps_of(each) for name, each in at_once.items()
    }
