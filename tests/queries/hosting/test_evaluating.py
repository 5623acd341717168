"""One evaluation of a stage in a batch."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import polars as pl
import pytest
from kit.continuous import BUSES, CATALOG, EPOCH, TRADE
from kit.hosting import frame

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.streams import SEQUENCE, TOMBSTONE
from upstream.queries.deltas.zsets import BEGINNING
from upstream.queries.hosting import evaluating
from upstream.queries.hosting.evaluating import Evaluations, Job, Moment, _Kept
from upstream.queries.language import bind
from upstream.queries.relations.sharing import shareable

MINUTE_US = 60_000_000
START_US = int(EPOCH.timestamp() * 1_000_000)
COUNT = "SELECT sym, COUNT(*) AS n FROM trade [RANGE 10 MINUTES] GROUP BY sym"
RATIO = "SELECT sym, SUM(1 / n) AS r FROM trade [RANGE 10 MINUTES] GROUP BY sym"


def job(name: str, text: str = COUNT) -> dict[str, Job]:
    return {name: Job(name, shareable(bind(text, CATALOG).plan), ())}


def rows(*minutes: int, n: int = 1) -> dict[str, pl.DataFrame]:
    came = frame(TRADE, [("a", 1.0, n, EPOCH + timedelta(minutes=minute)) for minute in minutes])
    return {"trade": came.with_columns(pl.Series(SEQUENCE, range(came.height), dtype=pl.Int64))}


def moment(before: int | None, now: int) -> Moment:
    return Moment(None if before is None else START_US + before * MINUTE_US, START_US + now * MINUTE_US, 0)


def again(evaluations: Evaluations, store: DictStore) -> Evaluations:
    return Evaluations(store, json.loads(json.dumps(evaluations.to_json())))


def test_it_goes_on_from_its_state() -> None:
    store = DictStore()
    evaluations = Evaluations(store, {})
    first = evaluations.step("e", "event", job("q"), moment(None, 5), rows(1), {})
    assert first.changes["q"].get_column("n").to_list() == [1]
    assert first.begun == {"q": BEGINNING}
    evaluations = again(evaluations, store)
    second = evaluations.step("e", "event", job("q"), moment(5, 6), rows(5), {})
    assert sorted(second.changes["q"].get_column("n").to_list()) == [1, 2]
    assert second.begun == {}


def test_the_reason_of_a_failure_is_in_the_words_of_the_query() -> None:
    text = "SELECT sym, 1 / (COUNT(*) - 1) AS r FROM trade [RANGE 10 MINUTES] GROUP BY sym"
    found = Evaluations(DictStore(), {}).step("e", "event", job("q", text), moment(None, 5), rows(1), {})
    assert "count(*) = 1" in found.failed["q"]
    assert "a:" not in found.failed["q"]


def test_with_nothing_to_do_it_is_not_opened() -> None:
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


def test_an_evaluation_that_begins_later_is_whole_when_its_window_is_full() -> None:
    evaluations = Evaluations(DictStore(), {})
    found = evaluations.step("e", "event", job("q"), moment(5, 6), rows(4, 5), {})
    assert found.late == {"trade": 1}
    assert found.begun == {"q": START_US + 15 * MINUTE_US}
    assert found.changes["q"].get_column("n").to_list() == [1]


def test_a_process_keeps_an_evaluation_between_batches_of_one_state_only() -> None:
    store = DictStore()
    evaluations = Evaluations(store, {})
    evaluations.step("e", "event", job("q"), moment(None, 5), rows(1), {})
    copy = DictStore()
    copy.values.update(store.values)
    saved = json.loads(json.dumps(evaluations.to_json()))
    with patch.object(evaluating, "Evaluation", side_effect=AssertionError):
        first = evaluations.step("e", "event", {**job("q"), **job("r")}, moment(5, 6), rows(5), {})
    with patch.object(evaluating, "Evaluation", wraps=evaluating.Evaluation) as made:
        again = Evaluations(copy, saved).step("e", "event", {**job("q"), **job("r")}, moment(5, 6), rows(5), {})
    assert made.call_count == 1
    assert {name: each.rows() for name, each in first.changes.items()} == {
        name: each.rows() for name, each in again.changes.items()
    }
    with patch.object(evaluating, "Evaluation", side_effect=AssertionError):
        last = evaluations.step("e", "event", job("r"), moment(6, 7), rows(6), {})
    assert last.changes.keys() == {"r"}


def test_only_so_many_evaluations_are_kept() -> None:
    kept = _Kept(1)
    stores = [DictStore(), DictStore()]
    made = [Evaluation(store) for store in stores]
    for each in made:
        each.save()
        kept.keep(each)
    assert kept.taken(stores[0], "event") is not made[0]
    assert kept.taken(stores[1], "event") is made[1]
    assert kept.taken(stores[1], "event") is not made[1]


def test_rows_that_came_before_make_what_begins_whole_later() -> None:
    evaluations = Evaluations(DictStore(), {})
    late = Moment(START_US, START_US + MINUTE_US, 0, newest=START_US + 3 * MINUTE_US)
    found = evaluations.step("e", "event", job("q"), late, {}, {})
    assert found.begun == {"q": START_US + 13 * MINUTE_US + 1}
    shares = evaluations.step("e", "event", {**job("q"), **job("r")}, moment(1, 1), {}, {})
    assert shares.begun == {"r": START_US + 13 * MINUTE_US + 1}
    unsure = Evaluations(DictStore(), {})
    assert unsure.step("e", "event", job("q"), replace(moment(None, 1), missed=True), {}, {}).begun == {"q": None}


def test_a_job_that_fails_does_not_disturb_the_others() -> None:
    evaluations = Evaluations(DictStore(), {})
    found = evaluations.step("e", "event", {**job("q"), **job("r", RATIO)}, moment(None, 5), rows(1, n=0), {})
    assert found.failed.keys() == {"r"}
    assert found.failed["r"].startswith("QueryError: ")
    assert found.changes.keys() == found.begun.keys() == {"q"}


def test_a_job_that_cannot_be_added_fails_alone() -> None:
    evaluations = Evaluations(DictStore(), {})
    found = evaluations.step("e", "arrival", job("q"), moment(None, 5), {}, {})
    assert found.failed.keys() == {"q"}
    assert found.begun == {}


def test_the_state_of_jobs_and_of_evaluations_that_are_gone_is_removed() -> None:
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


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("form", COUNTS)
def test_what_begins_takes_nothing_over_from_what_has_left_if_that_is_cleared(kept: bool, form: str) -> None:
    """But it does from what goes on, whether the process has the evaluation or opens it."""
    text = COUNTS[form].replace("COUNT(*)", "SUM(n)")
    maximum = text.replace("SUM(n)", "MAX(n)")
    for clears, stays, taken in (
        (False, {}, [1]),
        (True, {}, []),
        (True, job("s", text), [1]),
        (True, job("s", maximum), [1] if form == "range" else []),  # slices have only what others want of them
    ):
        store = DictStore()
        with patch.object(evaluating, "_kept", _Kept(8 if kept else 0)):
            evaluations = Evaluations(store, {})
            evaluations.step("e", "event", {**job("q", text), **stays}, moment(None, 5), rows(1), {})
            evaluations = again(evaluations, store)
            jobs = {**job("r", text), **stays}
            found = evaluations.step("e", "event", jobs, moment(5, 6), {}, {}, clears=clears)
        changes = found.changes.get("r", pl.DataFrame({"n": []}))
        assert changes.get_column("n").to_list() == taken
        whole = found.begun["r"]
        assert whole == BEGINNING if taken == [1] else whole is not None and whole >= START_US + 14 * MINUTE_US


def test_tombstones_are_forgotten_when_the_low_watermark_has_passed_them_also_without_rows() -> None:
    store = DictStore()
    evaluations = Evaluations(store, {})
    newest = job("q", "SELECT vehicle_id, speed FROM LATEST(buses)")
    gone = frame(BUSES, [("a", "r", 1.0, EPOCH + timedelta(minutes=8))]).with_columns(
        pl.lit(0, pl.Int64).alias(SEQUENCE), pl.lit(True).alias(TOMBSTONE)
    )
    evaluations.step("e", "arrival", newest, moment(None, 5), {"buses": gone}, {})
    kept = {kind for kind, _ in store.values}
    with patch.object(evaluating, "Evaluation", side_effect=AssertionError):
        evaluations.step("e", "arrival", newest, moment(5, 8), {}, {})
    assert {kind for kind, _ in store.values} == kept
    evaluations = again(evaluations, store)
    assert evaluations.step("e", "arrival", newest, moment(8, 9), {}, {}).changes == {}
    assert {kind for kind, _ in store.values} == {"e/head", "e/operators", "e/queries"}
    with patch.object(evaluating, "Evaluation", side_effect=AssertionError):
        evaluations.step("e", "arrival", newest, moment(9, 10), {}, {})
