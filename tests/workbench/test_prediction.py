"""The load that commits show, and predictions for it within the time of a request."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from kit.scenes import Scene

from upstream.conf.errors import OptionError
from upstream.core.feedback.control import NOW, ControlChange, ControlLog
from upstream.sink.merge.task import Arrivals
from upstream.storage.folder import TableFolder
from upstream.workbench import prediction
from upstream.workbench.watch import Watch

BODY = {"rate": 1_000, "keys": 100, "skew": 0.5, "cost_us": 2_000, "fixed_us": 100_000, "budget": 50}


def watched(scene):
    watch = Watch([str(scene.path)], {})
    watch.refresh()
    return watch.table()


def measured(scene):
    return prediction.measured(watched(scene))


def test_a_query_without_a_queue_has_the_rate_keys_and_skew_of_its_commits(tmp_path):
    scene = Scene(tmp_path, keys=300, rows_per_batch=300)
    random = np.random.default_rng(1)
    for batch in range(6):
        scene.now_us += 1_000_000
        weight = np.arange(1, 301) ** -1.0
        keys = random.choice(300, 300, p=weight / weight.sum())
        rows = [(int(key), 1, 1.0, scene.now_us) for key in keys]
        scene.batch(batch, [scene.rows(rows, seq=batch * 1_000)])
    found = measured(scene)
    assert found["load"]["rate"] == pytest.approx(300, rel=0.01)
    assert found["load"]["skew"] == pytest.approx(1.0, abs=0.15)
    assert found["load"]["budget"] is None
    assert found["load"]["cost_us"] * 300 == pytest.approx(5e5, rel=0.3), "half of the time between commits"
    assert found["load"]["fixed_us"] == pytest.approx(5e5, rel=0.3)
    assert found["seen"]["over_time"][0] <= found["seen"]["over_time"][1]


def test_a_query_with_a_queue_has_the_cost_of_the_steps_after_it(tmp_path):
    scene = Scene(tmp_path, waiting=4_812, keys=20_000).history(5)
    load = measured(scene)["load"]
    assert load["rate"] == pytest.approx(10_000, rel=0.05), "both shards together"
    assert load["cost_us"] == pytest.approx(500), "half a second for two times 500 rows"
    assert load["budget"] is not None


def test_the_advised_budget_lowers_staleness_as_the_simulation_predicts(tmp_path):
    scene = Scene(tmp_path, waiting=4_812, keys=20_000).history(7)
    advice = prediction.budget_advice(watched(scene))
    best, rows, gain = (int(each.replace(",", "")) for each in re.findall(r"[\d,]+", advice))
    load = {**measured(scene)["load"], "rate": 5_000.0, "keys": scene.waiting, "skew": 0.0, "policies": ("in-place",)}
    young, old = (
        prediction.predict(prediction.Question(**{**load, "budget": each}), prediction.FIRST).predictions[0].mean
        for each in (best, rows)
    )
    assert 1 - young / old == pytest.approx(gain / 100, abs=0.05)
    assert prediction.budget_advice(watched(Scene(tmp_path / "calm").history(7))) == ""


def test_advice_and_load_count_from_the_last_change_of_a_setting(tmp_path):
    scene = Scene(tmp_path, waiting=4_812, keys=20_000).history(7)
    log, table = ControlLog(TableFolder(str(scene.checkpoint))), watched(scene)

    def seen():
        table.refresh()
        found = prediction.measured(table)["seen"]
        return bool(prediction.budget_advice(table)), 0 if found is None else found["commits"]

    def steps(count):
        for _ in range(count):
            scene.now_us += 1_000_000
            scene.step()

    assert seen() == (True, 7)
    log.put(0, ControlChange("queue/0", "budget", 500, scene.now_us))
    assert seen() == (False, 0), "no batch has taken the change"
    steps(5)
    assert seen() == (False, 5)
    steps(1)
    assert seen() == (True, 6)
    log.put(1, ControlChange("source/scene", "sample", NOW, scene.now_us))
    assert seen() == (True, 6), "a request for rows changes nothing"
    steps(1)
    assert seen() == (True, 7)


def simulated(rates, keys=400, fixed_us=500_000, cost_us=1_000):
    """Commits of a query whose batches take all rows that came during the batch before."""
    random, commits, begun, now = np.random.default_rng(3), [], 0, fixed_us
    for rate in rates:
        rows = max(random.poisson(rate * (now - begun) / 1e6), 1)
        at = np.sort(random.uniform(begun, now, rows)).astype(np.int64)
        _, first = np.unique(random.integers(0, keys, rows), return_index=True)
        before, begun, now = now if commits else None, now, now + fixed_us + rows * cost_us
        arrivals = Arrivals.of(at[first])
        commits.append(
            SimpleNamespace(
                query_id="q", committed_at_us=now, rows=rows, updates=rows, applied=len(first), keys=keys, queue=None,
                superseded=rows - len(first), pending=None, oldest=None, target_met=None, ages=arrivals.ages(now),
                area=arrivals.area(now, before),
            )
        )  # fmt: skip
    return commits


def test_predictions_from_earlier_commits_are_what_later_ones_show():
    found = prediction.past_predictions(simulated([500] * 120), "in-place", seconds=60)
    assert (found["commits"], len(found["stretches"])) == (10, 11)
    assert found["median"] == pytest.approx(1, abs=0.25)
    assert found["factor"] < 1.4
    # When the load changes, the stretch before predicts what is no longer there.
    changed = prediction.past_predictions(simulated([500] * 110 + [20] * 10), "in-place", seconds=60)
    assert changed["stretches"][-1]["ratio"] > 5
    assert prediction.past_predictions([], "in-place")["median"] is None
    assert prediction.past_predictions(simulated([500] * 120), "in-place", seconds=-1)["stretches"] == []


def test_nothing_is_measured_before_three_commits(tmp_path):
    found = measured(Scene(tmp_path).history(2))
    assert found["load"] is None
    assert found["notes"]


def test_an_answer_has_each_policy_and_the_load():
    found = prediction.answer_quickly(prediction.question_of(BODY), seconds=60)
    assert {each["policy"] for each in found["predictions"]} == {"append", "shed", "fifo", "in-place", "linecutting"}
    assert found["load"] == pytest.approx(1_000 * (0.002 + 0.1 / 50))
    by_policy = {each["policy"]: each["mean"] for each in found["predictions"]}
    assert by_policy["in-place"] < by_policy["append"]


def test_the_policy_in_force_is_simulated_first_and_the_worst_last():
    question = prediction.question_of(BODY)
    found = prediction.answer_quickly(question, seconds=60, in_force="in-place")
    assert found["in_force"] == "in-place"
    assert [each["policy"] for each in found["predictions"]] == ["in-place", "linecutting", "fifo", "shed", "append"]
    assert prediction.answer_quickly(question, seconds=-1)["left_out"][0] == "linecutting"


def test_policies_are_left_out_when_the_time_is_over():
    found = prediction.answer_quickly(prediction.question_of(BODY), seconds=-1)
    assert found["predictions"] == []
    assert len(found["left_out"]) == 5


@pytest.mark.parametrize(
    "change",
    [{"rate": None}, {"keys": -1}, {"skew": True}, {"other": 1}, {"cost_us": "1"}, {"keys": 10**7}, {"rate": 10**9}],
)
def test_wrong_numbers_are_refused(change):
    with pytest.raises(OptionError):
        prediction.answer_quickly(prediction.question_of({**BODY, **change}))
