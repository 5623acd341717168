"""The benchmark of windows runs as its documentation says: equal results, then a table, aims and JSON; and a plot of
what it measured.
"""

import json

import pytest
from kit.programs import run_benchmark


def windows(*given):
    return run_benchmark("windows", "--quick", *given)


@pytest.mark.long
def test_ours_and_sparks(tmp_path):
    out = tmp_path / "out.json"
    given = ["--part", "peers", "--work", "tumbling", "--engine", "upstream", "--engine", "spark", "--json", out]
    done = windows(*given)
    assert done.returncode == 0, done.stderr
    ours, sparks = json.loads(out.read_text())["rows"]
    assert (ours["engine"], sparks["engine"]) == ("upstream", "spark")
    for row in (ours, sparks):
        assert row["work"] == "tumbling 60 s"
        assert row["size"] == 50_000
        assert row["seconds"] > 0
        assert row["peak_mb"] > 100
    assert ours["ratio_to_us"] == 1
    assert "tumbling 60 s, x spark" in done.stdout.partition("aims")[2]


@pytest.mark.parametrize("wrong", [["--work", "hopping"], ["--engine", "storm"], ["--part", "all"]])
def test_wrong_arguments_are_named(wrong):
    done = windows(*wrong)
    assert done.returncode == 2
    assert wrong[1] in done.stderr


def test_an_engine_with_fewer_rows_is_compared_by_rows_per_second(benchmark_module):
    harness = benchmark_module("harness")
    report = harness.Report("ours", by_rate=True)
    report.add(harness.Measured("some", "ours", 1_000, [2.0], 1))
    report.add(harness.Measured("some", "slow", 100, [4.0], 1))
    report.add(harness.Measured("other", "slow", 100, [4.0], 1))
    assert [row["ratio_to_us"] for row in report.rows()] == [1, 20, None]


def test_sparks_newest_per_key_is_that_of_its_batches(benchmark_module, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    module = benchmark_module("windows")
    first = {"key": [1, 2], "window_end": [60, 120], "n": [5, 6], "total": [7, 8]}
    second = {"key": [1], "window_end": [180], "n": [9], "total": [10]}
    for name, rows in (("a", second), ("b", first)):
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet")
    assert module.parquet_result(tmp_path, module.SLIDING).num_rows == 3
    rows = module.parquet_result(tmp_path, module.LATEST).sort_by("key").to_pylist()
    assert rows == [
        {"key": 1, "window_end": 180, "n": 9, "total": 10},
        {"key": 2, "window_end": 120, "n": 6, "total": 8},
    ]


def test_plot(benchmark_module, tmp_path):
    plot = tmp_path / "plots" / "windows.svg"
    benchmark_module("scaling").plot_windows([(2e6, 4.0), (1e6, 2.0)], [(1, 3.0), (600, 3.1)], plot)
    drawn = plot.read_text()
    assert "RANGE / SLIDE" in drawn
    assert "proportional to rows" in drawn
