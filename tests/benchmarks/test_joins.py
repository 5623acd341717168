"""The benchmark of joins runs as its documentation says: pairs are compared one by one, then figures and aims."""

import json

import numpy as np
import pytest
from kit.programs import run_benchmark


def joins(*given):
    return run_benchmark("joins", "--quick", *given)


def test_the_kernel_alone(tmp_path):
    out = tmp_path / "out.json"
    done = joins("--part", "kernel", "--json", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["more"]["kernel"]
    assert found["pairs"] > 100_000
    assert "kernel, probes sorted" in done.stdout.partition("aims")[2]


@pytest.mark.parametrize("wrong", [["--engine", "storm"], ["--part", "all"], ["--files-per-batch", "3"]])
def test_wrong_arguments_are_named(wrong):
    done = joins(*wrong)
    assert done.returncode == 2
    assert wrong[1] in done.stderr


def test_the_answer_is_every_pair_in_reach(benchmark_module):
    data, works = benchmark_module("data"), benchmark_module("join_works")
    work = works.JoinWork(400, 8, late=0.1, reach_s=20)
    left, right = (data.join_table(400, 8, side, 0.1).to_pylist() for side in (0, 1))
    pairs = [
        one["id"] * 400 + two["id"]
        for one in left
        for two in right
        if one["key"] == two["key"] and abs(one["ms"] - two["ms"]) <= 20_000
    ]
    assert works.expected(work).tolist() == sorted(pairs)
    assert len(pairs) > 50


def test_a_pair_that_is_missing_or_there_twice_stops_it(benchmark_module):
    works = benchmark_module("join_works")
    answer = np.array([1, 2, 3])
    works.check("some", np.array([1, 2, 3]), answer)
    with pytest.raises(SystemExit, match="some: 3 pairs, expected 3: 1 missing, 1 too many"):
        works.check("some", np.array([1, 2, 2]), answer)
