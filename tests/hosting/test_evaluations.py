import gc
import json
import weakref
from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest
from kit.continuous import BUSES, CATALOG, EPOCH, TRADE
from kit.hosting import frame

from upstream.core.rows.exact_integers import LOWEST
from upstream.core.watermark.bounds import AFTER_ALL, BEFORE_ALL
from upstream.hosting import evaluations as evaluating
from upstream.hosting.evaluations import BatchContext, Evaluations, PlanEvaluation, WaitingTables, Watermarks
from upstream.hosting.host_plan import Domain
from upstream.hosting.messages import Message
from upstream.language import bind
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.streams import SEQUENCE, TOMBSTONE
from upstream.operators.relations.zsets import BEGINNING
from upstream.operators.state.store import DictStore

MINUTE_US = 60_000_000
START_US = int(EPOCH.timestamp() * 1_000_000)
COUNT = "SELECT sym, COUNT(*) AS n FROM trade [RANGE 10 MINUTES] GROUP BY sym"
RATIO = "SELECT sym, SUM(1 / n) AS r FROM trade [RANGE 10 MINUTES] GROUP BY sym"


def job(name, text=COUNT):
    return {name: PlanEvaluation(name, shareable(bind(text, CATALOG).plan), ())}


def rows(*minutes, n=1):
    came = frame(TRADE, [("a", 1.0, n, EPOCH + timedelta(minutes=minute)) for minute in minutes])
    return {"trade": came.with_columns(pl.Series(SEQUENCE, range(came.height), dtype=pl.Int64))}


def moment(before, now):
    return BatchContext(None if before is None else START_US + before * MINUTE_US, START_US + now * MINUTE_US, 0)


def again(evaluations, store):
    return Evaluations(store, json.loads(json.dumps(evaluations.to_json())))


def test_the_reason_of_a_failure_is_in_the_words_of_the_query():
    text = "SELECT sym, 1 / (COUNT(*) - 1) AS r FROM trade [RANGE 10 MINUTES] GROUP BY sym"
    found = Evaluations(DictStore(), {}).step("e", "event", job("q", text), moment(None, 5), rows(1), {})
    assert found.failed["q"].startswith("QueryError: ")
    assert "count(*) = 1" in found.failed["q"]
    assert "a:" not in found.failed["q"]


def test_a_process_keeps_one_evaluation_of_a_state_and_none_of_a_state_that_is_gone():
    made: list[weakref.ref[Evaluation]] = []

    class Seen(Evaluation):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            made.append(weakref.ref(self))

    store, elsewhere = DictStore(), DictStore()
    with patch.object(evaluating, "Evaluation", Seen):
        evaluations = Evaluations(store, {})
        evaluations.step("e", "event", job("q"), moment(None, 5), rows(1), {})
        other = again(evaluations, elsewhere)
        elsewhere.values.update(store.values)
        evaluations.step("e", "event", job("q"), moment(5, 6), rows(5), {})
        gc.collect()
        assert [each() is None for each in made] == [False]
        other.step("e", "event", job("q"), moment(5, 6), rows(5), {})  # as after another process
        gc.collect()
        assert [each() is None for each in made] == [True, False]
        other.keep(set())
        gc.collect()
        assert [each() is None for each in made] == [True, True]
    assert not elsewhere.values


def test_with_nothing_to_do_it_is_not_opened():
    store = DictStore()
    evaluations = Evaluations(store, {})
    evaluations.step("e", "event", job("q"), moment(None, 5), rows(1), {})
    with patch.object(evaluating, "Evaluation", side_effect=AssertionError):
        found = again(evaluations, store).step("e", "event", job("q"), moment(5, 5), {}, {})
    assert found.changes == {}
    more = again(evaluations, store).step("e", "event", {**job("q"), **job("r")}, moment(5, 5), {}, {})
    assert more.changes["r"].get_column("n").to_list() == [1]
    late = evaluations.step("e", "event", job("q"), moment(5, 30), {}, {})
    assert late.changes["q"].get_column("n").to_list() == [1]


def test_an_evaluation_that_begins_later_is_whole_when_its_window_is_full():
    evaluations = Evaluations(DictStore(), {})
    found = evaluations.step("e", "event", job("q"), moment(5, 6), rows(4, 5), {})
    assert {name: late.height for name, late in found.late.items()} == {"trade": 1}
    assert found.begun == {"q": START_US + 15 * MINUTE_US}
    assert found.changes["q"].get_column("n").to_list() == [1]


def test_rows_that_came_before_make_what_begins_whole_later():
    evaluations = Evaluations(DictStore(), {})
    late = BatchContext(START_US, START_US + MINUTE_US, 0, newest=START_US + 3 * MINUTE_US)
    found = evaluations.step("e", "event", job("q"), late, {}, {})
    assert found.begun == {"q": START_US + 13 * MINUTE_US + 1}
    shares = evaluations.step("e", "event", {**job("q"), **job("r")}, moment(1, 1), {}, {})
    assert shares.begun == {"r": START_US + 13 * MINUTE_US + 1}
    unsure = Evaluations(DictStore(), {})
    assert unsure.step("e", "event", job("q"), replace(moment(None, 1), missed=True), {}, {}).begun == {"q": None}


def test_a_jump_of_time_is_caught_up_with_in_several_steps():
    text = "SELECT sym, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY sym EMIT PERIODIC INTERVAL '1' MINUTE"

    def caught_up():
        evaluations, came, found = Evaluations(DictStore(), {}), rows(1, 40), []
        while came or evaluations.behind:
            stepped = evaluations.step("e", "event", job("q", text), moment(None, 90), came, {})
            found += list(stepped.changes.values())
            came = {}
        return found

    few = caught_up()
    with patch("upstream.operators.relations.changes._MOST", 30):
        many = caught_up()
    assert all(frame.height <= 30 for frame in many)
    assert len(many) > 5 > len(few)
    assert pl.concat(many).rows() == pl.concat(few).rows()


def test_what_is_held_is_reported_until_its_time_has_passed():
    store = DictStore()
    evaluations = Evaluations(store, {})
    assert (evaluations.needs, evaluations.held_since_us, evaluations.behind) == (None, None, False)
    first = replace(moment(None, 5), now_us=70)
    evaluations.step("e", "event", job("q"), first, rows(1, 8), {})
    assert evaluations.needs == START_US + 8 * MINUTE_US + 1, "the second row takes part"
    evaluations = again(evaluations, store)
    evaluations.step("e", "event", job("q"), replace(moment(5, 9), now_us=80), {}, {})
    assert evaluations.needs == START_US + 11 * MINUTE_US + 1, "the first row leaves the window"
    assert evaluations.held_since_us == 70
    evaluations.step("e", "event", job("q"), moment(9, 30), {}, {})
    assert (evaluations.needs, evaluations.held_since_us) == (None, None)


def test_a_job_that_cannot_be_added_fails_alone():
    evaluations = Evaluations(DictStore(), {})
    found = evaluations.step("e", "arrival", job("q"), moment(None, 5), {}, {})
    assert found.failed.keys() == {"q"}
    assert found.begun == {}


def test_the_state_of_jobs_and_of_evaluations_that_are_gone_is_removed():
    store = DictStore()
    evaluations = Evaluations(store, {})
    evaluations.step("e", "event", job("q"), moment(None, 5), rows(1), {})
    alone = {kind for kind, _ in store.values}
    evaluations.step("e", "event", {**job("q"), **job("r", RATIO)}, moment(5, 6), rows(5), {})
    assert {kind for kind, _ in store.values} > alone
    evaluations = again(evaluations, store)
    evaluations.step("e", "event", job("q"), moment(6, 7), rows(6), {})
    assert {kind for kind, _ in store.values} == alone
    evaluations = again(evaluations, store)
    evaluations.keep(set())
    assert store.values == {}
    assert evaluations.to_json() == {}


COUNTS = {"range": COUNT, "slices": COUNT.replace("10 MINUTES]", "10 MINUTES SLIDE 1 MINUTE]")}


@pytest.mark.parametrize("form", COUNTS)
def test_what_begins_takes_nothing_over_from_what_has_left_if_that_is_cleared_but_from_what_goes_on(form):
    text = COUNTS[form].replace("COUNT(*)", "SUM(n)")
    maximum = text.replace("SUM(n)", "MAX(n)")
    for clears, stays, taken in (
        (False, {}, [1]),
        (True, {}, []),
        (True, job("s", text), [1]),
        (True, job("s", maximum), [1] if form == "range" else []),  # slices have only what others want of them
    ):
        store = DictStore()
        evaluations = Evaluations(store, {})
        evaluations.step("e", "event", {**job("q", text), **stays}, moment(None, 5), rows(1), {})
        jobs = {**job("r", text), **stays}
        found = again(evaluations, store).step("e", "event", jobs, moment(5, 6), {}, {}, clears=clears)
        changes = found.changes.get("r", pl.DataFrame({"n": []}))
        assert changes.get_column("n").to_list() == taken
        whole = found.begun["r"]
        assert whole == BEGINNING if taken == [1] else whole is not None and whole >= START_US + 14 * MINUTE_US


def test_tombstones_are_forgotten_when_the_low_watermark_has_passed_them_also_without_rows():
    store = DictStore()
    evaluations = Evaluations(store, {})
    newest = job("q", "SELECT vehicle_id, speed FROM LATEST(buses)")
    gone = frame(BUSES, [("a", "r", 1.0, EPOCH + timedelta(minutes=8))]).with_columns(
        pl.lit(0, pl.Int64).alias(SEQUENCE), pl.lit(True).alias(TOMBSTONE)
    )
    evaluations.step("e", "arrival", newest, moment(None, 5), {"buses": gone}, {})
    assert evaluations.needs is None, "no source is to promise for it"
    kept = {kind for kind, _ in store.values}
    with patch.object(evaluating, "Evaluation", side_effect=AssertionError):
        evaluations.step("e", "arrival", newest, moment(5, 8), {}, {})
    assert {kind for kind, _ in store.values} == kept
    evaluations = again(evaluations, store)
    assert evaluations.step("e", "arrival", newest, moment(8, 9), {}, {}).changes == {}
    assert {kind for kind, _ in store.values} == {"e/head", "e/operators", "e/queries"}
    with patch.object(evaluating, "Evaluation", side_effect=AssertionError):
        evaluations.step("e", "arrival", newest, moment(9, 10), {}, {})


def test_results_over_slides_are_complete_at_the_slide_after_the_rows_that_were_missed():
    """A row of 00:16, missed at 00:14, is in the window of two minutes that shows until 00:20."""
    minute = 60_000_000
    moment = BatchContext(14 * minute, 14 * minute, 0, None, newest=16 * minute)
    whole = evaluating._Whole({}, moment, first=True)
    assert 20 * minute <= whole.of(16 * minute, 2 * minute) <= 21 * minute
    assert evaluating._Whole({}, moment, first=True).of(16 * minute, 0) == 18 * minute + 1


def test_tables_wait_in_order_across_batches_and_leave_nothing():
    store = DictStore()
    waiting = WaitingTables(store, {})
    waiting.put("a", pa.table({"x": [1, 2]}))
    waiting.put("a", pa.table({"x": []}))
    waiting.put("b", pa.table({"x": [9]}))
    again = WaitingTables(store, waiting.to_json())
    again.put("a", pa.table({"x": [3]}))
    assert [each.to_pydict() for each in again.take("a")] == [{"x": [1, 2]}, {"x": [3]}]
    assert again.take("a") == []
    again.keep({"c"})
    assert store.values == {}
    assert again.to_json() == {}


BOTH = Domain("both", ("r", "s"), "event")
ONE = Domain("one", ("r",), "event")
NEWEST = Domain("newest", ("r",), "arrival")
STORED = Domain("stored", (), "event")


def heard(stream, arrival, newest=None, **bounds):
    return Message({"stream": stream, "bounds": bounds, "arrival": arrival, "newest": newest}, None, "")


def restored(marks):
    return Watermarks(json.loads(json.dumps(marks.to_json())))


def test_a_domain_waits_for_all_of_its_streams():
    marks = Watermarks({})
    found = marks.moments([BOTH, ONE, STORED], [heard("r", 7, f=10, g=20)])
    assert found == {
        "both": BatchContext(None, None, 7),
        "one": BatchContext(None, 10, 7),
        "stored": BatchContext(AFTER_ALL, AFTER_ALL, 7, AFTER_ALL),
    }
    marks = restored(marks)
    assert marks.moments([BOTH, ONE], [heard("s", 6, f=5)]) == {
        "both": BatchContext(None, 5, 7),
        "one": BatchContext(10, 10, 7, 10),
    }


def test_several_tasks_speak_of_one_feed():
    marks = Watermarks({})
    assert marks.moments([ONE], [heard("r", 1, f=9), heard("r", 3, f=4)])["one"] == BatchContext(None, 9, 3)


def test_a_watermark_never_goes_back():
    marks = Watermarks({})
    marks.moments([ONE], [heard("r", 1, f=9)])
    marks = restored(marks)
    assert marks.moments([ONE], [heard("r", 2, g=BEFORE_ALL)])["one"] == BatchContext(9, 9, 2, 9)
    assert marks.moments([ONE], [heard("r", 3, g=4)])["one"] == BatchContext(9, 9, 3, 9)
    assert marks.moments([ONE], [heard("r", 3, g=AFTER_ALL, f=12)])["one"] == BatchContext(9, 12, 3, 9)


def test_a_domain_that_is_new_begins_where_its_streams_are():
    marks = Watermarks({})
    marks.moments([ONE], [heard("r", 1, f=9), heard("s", 1, f=4)])
    assert marks.moments([BOTH], [heard("s", 2, f=8)])["both"] == BatchContext(4, 8, 2, 4)


def test_a_domain_that_is_new_does_not_go_back_with_a_feed_that_is_new():
    marks = Watermarks({})
    marks.moments([], [heard("r", 1, f=15)])
    assert marks.moments([ONE], [heard("r", 2, g=11)])["one"] == BatchContext(15, 15, 2, 15)
    assert restored(marks).moments([ONE], [])["one"] == BatchContext(15, 15, 2, 15)


def test_by_the_clock_of_arrival_rows_that_have_passed_are_enough():
    marks = Watermarks({})
    assert marks.moments([NEWEST], [heard("s", 3)])["newest"] == BatchContext(None, None, 3)
    assert marks.moments([NEWEST], [heard("r", 4)])["newest"] == BatchContext(None, None, 4)
    assert restored(marks).moments([NEWEST], [])["newest"] == BatchContext(LOWEST, None, 4, 5)


def test_rows_that_came_before_count_by_the_newest_of_them():
    marks = Watermarks({})
    assert marks.moments([ONE], [heard("r", 1, newest=30, f=9)])["one"] == BatchContext(None, 9, 1)
    found = restored(marks).moments([ONE, BOTH], [heard("s", 2, newest=50, f=8)])
    assert found == {"one": BatchContext(9, 9, 2, 9, newest=30), "both": BatchContext(None, 8, 2, None, newest=30)}
