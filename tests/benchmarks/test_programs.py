"""The benchmarks run as their documentation says: equal results, then a table, aims and JSON."""

import json
import signal
import sys

import pytest
from kit import modules
from kit.places import ROOT
from kit.programs import run, run_benchmark, run_python


def measured(tmp_path, program):
    """What a benchmark prints, and writes as JSON."""
    out = tmp_path / "out.json"
    name, *given = program.replace("OUT", str(tmp_path)).split()
    done = run_benchmark(name, "--quick", *given, "--json", out)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


def test_the_engines_without_a_jvm(tmp_path):
    _, written = measured(tmp_path, "latest --part peers --engine duckdb --engine polars --rows 50k")
    assert {"cores", "versions"} <= written["machine"].keys()
    rows = written["rows"]
    assert {(row["work"].partition(", ")[2], row["engine"]) for row in rows} == {
        (work, engine) for work in ("whole process", "steady state") for engine in ("duckdb (batch)", "polars (batch)")
    }
    for row in rows:
        assert {"rows_per_second", "ratio_to_us"} <= row.keys()
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
    assert "expected" in done.stderr
    assert "x ours" not in done.stdout


@pytest.mark.parametrize(
    ("name", "option", "wrong"),
    [
        ("latest", "--rows", "many"),
        ("latest", "--part", "all"),
        ("windows", "--work", "hopping"),
        ("windows", "--engine", "storm"),
        ("windows", "--part", "all"),
        ("joins", "--engine", "storm"),
        ("joins", "--part", "all"),
        ("joins", "--files-per-batch", "3"),
    ],
)
def test_wrong_arguments_are_named(benchmark_module, capsys, name, option, wrong):
    with pytest.raises(SystemExit) as stopped:
        benchmark_module(name).main(["--quick", option, wrong])
    assert stopped.value.code == 2
    assert wrong in capsys.readouterr().err


PROGRAMS = [
    path
    for folder in ("benchmarks", "examples", "tools")
    for path in sorted((ROOT / folder).glob("*.py"))
    if "add_argument(" in (text := path.read_text()) and "__main__" in text
]
ALONE = {"benchmarks.figures", "benchmarks.kafka", "benchmarks.start_up", "tools.mutants"}
"""Those that import from the root, or take their arguments."""


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_each_program_prints_its_help(path, monkeypatch, capsys):
    if f"{path.parent.name}.{path.stem}" in ALONE:
        ran = run(sys.executable, "-m", f"{path.parent.name}.{path.stem}", "--help", cwd=ROOT)
        assert (ran.returncode, "usage:" in ran.stdout) == (0, True), ran.stderr
        return
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    module = modules.benchmark(path.stem) if path.parent.name == "benchmarks" else modules.load(path)
    earlier = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            module.main()
    finally:
        signal.signal(signal.SIGTERM, earlier)
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


@pytest.mark.long
def test_windows_of_ours_and_sparks(tmp_path):
    printed, written = measured(tmp_path, "windows --part peers --work tumbling --engine upstream --engine spark")
    ours, sparks = written["rows"]
    assert (ours["engine"], sparks["engine"]) == ("upstream", "spark")
    for row in (ours, sparks):
        assert (row["work"], row["size"]) == ("tumbling 60 s", 50_000)
        assert row["seconds"] > 0
        assert row["peak_mb"] > 100
    assert ours["ratio_to_us"] == 1
    assert "tumbling 60 s, x spark" in printed.partition("aims")[2]


def test_the_kernel_of_joins_alone(tmp_path):
    printed, written = measured(tmp_path, "joins --part kernel")
    assert written["more"]["kernel"]["pairs"] > 100_000
    assert "kernel, probes sorted" in printed.partition("aims")[2]


@pytest.mark.long
def test_every_pair_is_in_our_own_table(tmp_path):
    out, name = tmp_path / "out.json", "upstream, own table"
    done = run_benchmark("joins", "--quick", "--part", "peers", "--rows", "20k", "--engine", name, "--json", out)
    assert done.returncode == 0, done.stderr  # pairs that differ stop it
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["engine"], row["size"]) == (name, 40_000)


@pytest.mark.long
def test_growth_hot_keys_and_memory_run_without_spark(tmp_path):
    printed, written = measured(tmp_path, "joins --part hot --part scaling --part memory --plot OUT/growth.svg")
    more = written["more"]
    assert min(more["hot"][name]["pairs"] for name in ("uniform", "hot")) > 100_000
    assert [rows for rows, _ in more["scaling"]["by_rows"]] == [50_000, 100_000, 200_000, 400_000]
    assert all(each["law"] * 0.95 <= each["kept"] <= each["most"] * 1.05 for each in more["memory"]["kept"])
    assert "hot key, x uniform keys" in printed.partition("aims")[2]
    assert "<svg" in (tmp_path / "growth.svg").read_text()


def test_more_rows_than_the_law_allows_stop_it(benchmark_module, monkeypatch):
    growth = benchmark_module("join_growth")
    monkeypatch.setattr(growth.JoinShards, "kept", property(lambda _: 10**9))
    with pytest.raises(SystemExit, match="1,000,000,000 rows are kept"):
        growth.memory(2_000, 40)


@pytest.mark.parametrize(
    ("part", "works"),
    [
        ("pure", 6),  # one for each policy
        ("shard", 9),
        pytest.param("pending", 4, marks=pytest.mark.long),
        ("order", 0),
    ],
)
def test_parts_of_the_queue(part, works, tmp_path):
    _, written = measured(tmp_path, f"queue --part {part}")
    assert len({row["work"] for row in written["rows"]}) == works
    assert all(row["seconds"] > 0 for row in written["rows"])
    more = written["more"][part]
    if part == "order":
        for each in more.values():
            assert each["served"] > 0
            assert each["wrong_share"] < 0.05
            assert each["late_ms_max"] < each["queue_ms"] / 10
    if part == "pending":
        numbers, text = more.values()
        # Whole numbers are found without looking at rows: only what is served is read. Text has to be compared.
        assert numbers["row_pages_read"] <= text["row_pages_read"]
        assert numbers["bytes_written"] < numbers["stored_bytes"] / 16
