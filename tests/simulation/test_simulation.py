"""The simulation in CI: it finds nothing, and with a defect put back it finds that."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kit import golden, programs
from kit.places import ROOT

from . import oracle
from .campaign import SHARES
from .defects import DEFECTS, OF_TEXTS
from .inputs import Row
from .scenario import Scenario, shrunk

SCENARIOS = int(os.environ.get("UPSTREAM_SCENARIOS", "200"))
FIRST = int(os.environ.get("UPSTREAM_SEED", "0"))
FOR_A_DEFECT = 100
# Scenarios of each profile whose results are many.
RECORDED = {
    "latest": (3, 4, 5, 6, 7), "restore": (3, 4, 6, 7, 8), "two_writes": (2, 3, 6, 10, 11),
    "windows": (1, 3, 7, 8, 10), "arrival": (1, 5, 10, 12, 13), "ends": (1, 2, 6, 7, 9), "over": (7, 8, 11, 12, 15),
    "queue": (3, 4, 5, 7, 11), "ordered": (1, 3, 7, 12, 14), "joins": (3, 4, 5, 10, 12),
    "early_joins": (3, 5, 8, 9, 14), "ordered_joins": (1, 3, 8, 9, 12), "limited_joins": (2, 3, 4, 9, 10),
    "table_joins": (1, 4, 8, 12, 14), "newest_joins": (3, 4, 10, 11, 14), "cut": (1, 7, 11, 12, 14),
    "hosted": (1, 2, 5, 9, 11),
}  # fmt: skip

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def ask():
    """Gives orders to a process of the simulation, which replaces its own clock, and forks for each of them."""
    command = [sys.executable, "-m", "tests.simulation", "--serve"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def order(**given: Any) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps(given), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        yield order


@pytest.mark.parametrize(
    "count", [SCENARIOS, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(7200)])]
)
def test_many_scenarios_and_no_failure(ask, count):
    done = ask(first=FIRST, count=count)
    assert not done["failures"], f"UPSTREAM_SEED={FIRST}, and this one is\n{done['failures'][0]['account']}"
    assert sum(done["ran"].values()) == count
    assert set(done["ran"]) == set(SHARES)


@pytest.fixture(scope="module")
def answers(ask):
    return ask(answers=RECORDED)


@pytest.mark.parametrize("profile", SHARES)
def test_answers_are_the_recorded_ones(answers, profile):
    assert not {seed: each["failed"] for seed, each in answers[profile].items() if "failed" in each}
    golden.check("simulation", profile, answers[profile])


@pytest.mark.parametrize("name", sorted(DEFECTS))
def test_a_defect_that_is_put_back_is_found(ask, name):
    failures = ask(defect=name, count=FOR_A_DEFECT)["failures"]
    assert failures, f"{name} is not found by {FOR_A_DEFECT} scenarios"
    assert "MismatchError" in failures[0]["error"]


def test_a_thousand_answers_of_why_are_right(ask):
    """Of each key, present or not, after each batch: which row decided it, how many it superseded, or where it is."""
    right = ask(why=list(range(40)))
    assert sum(right.values()) > 1000
    assert set(right) >= {"present", "deleted", "unread", "unseen", "filtered", "dead letter"}


@pytest.mark.parametrize("forgets", [False, True], ids=["goes-on", "starts-again"])
def test_a_table_that_missed_a_batch_takes_no_later_one(ask, forgets):
    assert ask(forgets=forgets) == ""


def test_a_failure_shrinks_to_what_it_needs():
    rows = [["rows", 0, [[1, time, 0], [2, time + 1, 0]]] for time in range(10)]
    scenario = Scenario("latest", 1, {"honest": False}, [*rows, ["restart"], ["batch", {"limit": 3, "twins": 1.0}]])

    def fails(tried: Scenario) -> bool:
        words = [action[0] for action in tried.actions]
        times = [row[1] for word, *given in tried.actions if word == "rows" for row in given[1]]
        return "batch" in words and 7 in times

    small = shrunk(scenario, fails)
    assert [action[0] for action in small.actions] == ["rows", "batch"]
    assert small.actions[0][2] == [[small.actions[0][2][0][0], 7, 0]]
    assert small.actions[1] == ["batch", {}]
    assert Scenario.from_json(small.to_json()) == small


def test_the_oracle_itself():
    rows = [Row(1, 10, "a", False, 0), Row(1, 10, "b", False, 1), Row(2, 5, "c", False, 2), Row(2, 6, "d", True, 3)]
    assert oracle.newest(rows) == {1: (10, "b")}
    assert oracle.newest([*rows, Row(2, 7, "e", False, 4), Row(2, 6, "f", False, 5)])[2] == (7, "e")
    config = {"progress": "bounded", "delay": 1, "displacement": 0, "confirmations": 2}
    late = [row._replace(time=row.time * 1000) for row in rows]
    assert oracle.bound_of(late[:1], config) is None
    assert oracle.bound_of(late, config) == 9000
    assert oracle.bound_of(late, {**config, "progress": "displaced", "displacement": 2}) == 10_000
    assert oracle.low_watermark({"a": late, "b": late[:1], "c": []}, set(), config) is None
    assert oracle.low_watermark({"a": late, "b": late[:1]}, {"b"}, config) == 9000
    assert oracle.windows([(1, 4, 7), (1, 5, 1)], 10, 5) == {(1, 5): (1, 7), (1, 10): (2, 8), (1, 15): (1, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(7200)])])
def test_texts_that_attack_a_job(count):
    command = [sys.executable, "-m", "tests.simulation.poison", "--texts", str(count), "--seed", str(FIRST)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = programs.run(*command, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    outcome = json.loads(done.stdout)
    assert sum(outcome.values()) == count
    assert min(outcome["refused"], outcome["ran"]) > count / 20


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(OF_TEXTS))
def test_a_defect_that_texts_attack_is_found(name):
    seed, _ = OF_TEXTS[name]
    command = [sys.executable, "-m", "tests.simulation.poison", "--texts=100", f"--seed={seed}", f"--defect={name}"]
    done = programs.run(*command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "tests")})
    assert done.returncode != 0
    assert "ModuleNotFoundError" not in done.stderr
