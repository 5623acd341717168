"""The benchmark of joins runs as its documentation says: pairs are compared one by one, then figures and aims."""

import json

import numpy as np
import pyarrow.parquet as pq
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


@pytest.mark.long
def test_every_pair_is_in_our_own_table(tmp_path):
    out, name = tmp_path / "out.json", "upstream, own table"
    done = joins("--part", "peers", "--rows", "20k", "--engine", name, "--json", out)
    assert done.returncode == 0, done.stderr  # pairs that differ stop it
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["engine"], row["size"]) == (name, 40_000)


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


@pytest.mark.long
def test_growth_hot_keys_and_memory_run_without_spark(tmp_path):
    out, plot = tmp_path / "out.json", tmp_path / "growth.svg"
    parts = [word for part in ("hot", "scaling", "memory") for word in ("--part", part)]
    done = joins(*parts, "--json", out, "--plot", plot)
    assert done.returncode == 0, done.stderr
    more = json.loads(out.read_text())["more"]
    assert min(more["hot"][name]["pairs"] for name in ("uniform", "hot")) > 100_000
    assert [rows for rows, _ in more["scaling"]["by_rows"]] == [50_000, 100_000, 200_000, 400_000]
    assert all(each["law"] * 0.95 <= each["kept"] <= each["most"] * 1.05 for each in more["memory"]["kept"])
    assert "hot key, x uniform keys" in done.stdout.partition("aims")[2]
    assert "<svg" in plot.read_text()


def test_more_rows_than_the_law_allows_stop_it(benchmark_module, monkeypatch):
    growth = benchmark_module("join_growth")
    monkeypatch.setattr(growth.JoinShards, "kept", property(lambda _: 10**9))
    with pytest.raises(SystemExit, match="1,000,000,000 rows are kept, and by the law it is from"):
        growth.memory(2_000, 40)


def test_late_rows_lie_apart_and_nothing_is_lost(benchmark_module, monkeypatch, tmp_path):
    data = benchmark_module("data")
    monkeypatch.setattr(data, "CACHE", tmp_path)
    folder = data.join_feed(5_000, 100, 0, 4, 0.1, apart=True)
    whole = data.join_table(5_000, 100, 0, 0.1)
    parts = {part: pq.read_table(folder / part) for part in ("late", "on-time")}
    ids = np.concatenate([part.column("id").to_numpy() for part in parts.values()])
    assert sorted(ids.tolist()) == list(range(5_000))
    assert 0.05 < parts["late"].num_rows / 5_000 < 0.15
    late = np.isin(whole.column("id").to_numpy(), parts["late"].column("id").to_numpy())
    behind = np.maximum.accumulate(whole.column("ms").to_numpy()) - whole.column("ms").to_numpy()
    assert behind[~late].max() <= 5_000
    assert np.median(behind[late]) >= 300_000 - 5_000
