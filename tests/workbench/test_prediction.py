"""The load that commits show, and predictions for it within the time of a request."""

import numpy as np
import pytest
from kit.scenes import Scene

from upstream.conf.errors import OptionError
from upstream.workbench import prediction
from upstream.workbench.watch import Watch

BODY = {"rate": 1_000, "keys": 100, "skew": 0.5, "cost_us": 2_000, "fixed_us": 100_000, "budget": 50}


def measured(scene):
    watch = Watch([str(scene.folder)], {})
    watch.refresh()
    return prediction.measured(watch.table())


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
    assert found["load"]["cost_us"] == pytest.approx(1e6 / 300, rel=0.3)
    assert found["seen"]["over_time"][0] <= found["seen"]["over_time"][1]


def test_a_query_with_a_queue_has_the_cost_of_the_steps_after_it(tmp_path):
    scene = Scene(tmp_path, waiting=4_812, keys=20_000).history(5)
    load = measured(scene)["load"]
    assert load["rate"] == pytest.approx(10_000, rel=0.05), "both shards together"
    assert load["cost_us"] == pytest.approx(500), "half a second for two times 500 rows"
    assert load["budget"] is not None


def test_nothing_is_measured_before_three_commits(tmp_path):
    found = measured(Scene(tmp_path).history(2))
    assert found["load"] is None
    assert found["notes"]


def test_an_answer_has_each_policy_and_the_load():
    found = prediction.answer_quickly(prediction.question_of(BODY))
    assert {each["policy"] for each in found["predictions"]} == {"append", "shed", "fifo", "in-place", "linecutting"}
    assert found["load"] == pytest.approx(1_000 * (0.002 + 0.1 / 50))
    by_policy = {each["policy"]: each["mean"] for each in found["predictions"]}
    assert by_policy["in-place"] < by_policy["append"]


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
