"""The benchmark runs as its documentation says: equal results, then a table and JSON."""

from __future__ import annotations

import json

import pytest
from kit.places import ROOT
from kit.programs import run_benchmark, run_python


def test_the_engines_without_a_jvm(tmp_path):
    out = tmp_path / "out.json"
    given = [
        "--quick",
        "--part",
        "peers",
        "--engine",
        "duckdb",
        "--engine",
        "polars",
        "--rows",
        "50k",
        "--json",
        str(out),
    ]
    done = run_benchmark("latest", *given)
    assert done.returncode == 0, done.stderr
    written = json.loads(out.read_text())
    assert {"cores", "versions"} <= written["machine"].keys()
    rows = written["rows"]
    assert {(row["work"].partition(", ")[2], row["engine"]) for row in rows} == {
        (work, engine) for work in ("whole process", "steady state") for engine in ("duckdb (batch)", "polars (batch)")
    }
    fields = {"work", "engine", "size", "seconds", "rows_per_second", "peak_mb", "ratio_to_us"}
    for row in rows:
        assert fields <= row.keys()
        assert row["size"] == 50_000
        assert row["seconds"] > 0
        assert row["peak_mb"] > 5


def test_a_wrong_result_stops_it(tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(
        "import benchmarks.latest as latest, dataclasses\n"
        "known = latest.engines()\n"
        "engine = known['duckdb (batch)']\n"
        "less = lambda path: engine.result(path).slice(1)\n"
        "latest.engines = lambda: {engine.name: dataclasses.replace(engine, result=less)}\n"
        "latest.main(['--quick', '--part', 'peers', '--rows', '50k', '--engine', 'duckdb'])\n"
    )
    done = run_python(f"import runpy; runpy.run_path({str(script)!r})", cwd=ROOT)
    assert done.returncode != 0
    assert "rows, expected" in done.stderr
    assert "x ours" not in done.stdout


@pytest.mark.parametrize("wrong", [["--rows", "many"], ["--part", "all"]])
def test_wrong_arguments_are_named(wrong):
    done = run_benchmark("latest", *wrong)
    assert done.returncode == 2
    assert wrong[1] in done.stderr
