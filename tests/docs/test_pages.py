"""The examples of the documentation run as they are printed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from kit import golden, programs
from kit.places import ROOT

from .docstrings import examples, needs_spark

DOCS = ROOT / "docs"
PAGES = {
    f"{path.parent.name}-{path.stem}": path.read_text(encoding="utf-8")
    for path in sorted((*DOCS.glob("how-to/*.md"), DOCS / "windows.md", DOCS / "readers.md"))
}
ON_SPARK = {name: text for name, text in examples().items() if needs_spark(name, text)}
WITH_PYTHON = {name: page for name, page in PAGES.items() if "```python" in page}

SLOW = re.compile(r"falling behind|loadTimeMs|took|longer than|[Ss]low")
"""Of a warning that a busy machine gets."""


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """What went wrong on a page, or in the docstrings, once one session for all has run it."""
    folder = tmp_path_factory.mktemp("snippets")
    (folder / "given.json").write_text(json.dumps({"pages": WITH_PYTHON, "examples": ON_SPARK}), encoding="utf-8")
    command = [sys.executable, str(Path(__file__).with_name("run_snippets.py")), "given.json"]
    known = dict[str, str]()
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):

        def found(*names: str) -> dict[str, str]:
            while not known.keys() >= set(names):
                line = process.stdout.readline()
                assert line, (folder / "errors").read_text()[-3000:]
                known.update(json.loads(line) if line.startswith("{") else {})
            return {name: known[name] for name in names}

        found.folder = folder
        yield found
        process.kill()


@pytest.mark.spark
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_examples_run(failures, page):
    assert failures(page) == {page: ""}
    golden.check("pages", page, golden.tables(failures.folder / page))


@pytest.mark.spark
def test_examples_of_docstrings_run(failures):
    assert {name: said for name, said in failures(*ON_SPARK).items() if said} == {}


def test_what_is_not_run_has_a_reason():
    for name, page in PAGES.items():
        for reason in re.findall(r"<!-- not run:(.*?)-->", page):
            assert len(reason.split()) >= 3, name


def test_the_page_on_testing_runs_where_there_is_no_java(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "testing.md").read_text(encoding="utf-8"), re.DOTALL)
    program = "\n".join([*blocks, "from pyspark import SparkContext", "assert SparkContext._gateway is None"])
    nowhere = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    done = programs.run(sys.executable, "-c", program, env=nowhere, cwd=tmp_path)
    assert blocks
    assert done.returncode == 0, done.stderr[-3000:]
    assert not list(tmp_path.iterdir())


@pytest.mark.spark
def test_the_tutorial(tmp_path):
    """Its programs are saved, its lines of shell run, in their order."""
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    outputs = dict[str, str]()
    before = 0
    for found in re.finditer(r"```(python|sql|shell)\n(.*?)```", page, re.DOTALL):
        if found[1] != "shell":
            (name,) = re.findall(r"[Ss]ave this\s+as `([\w.]+)`", page[before : found.start()])
            (tmp_path / name).write_text(found[2], encoding="utf-8")
        else:
            done = programs.run("bash", "-euo", "pipefail", "-c", found[2], cwd=tmp_path, env=environment)
            assert done.returncode == 0, f"{found[2]}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
            assert [line for line in done.stderr.splitlines() if " WARN " in line and not SLOW.search(line)] == []
            outputs[found[2]] = outputs.get(found[2], "") + done.stdout
        before = found.end()

    # What the text says of the results.
    assert "[(5, " in outputs["python read.py\n"]
    moving = outputs["upstream run job.sql --to lake --once\nupstream show lake/moving\n"]
    assert sorted(re.findall(r"bus-\d", moving)) == ["bus-1", "bus-2", "bus-3", "bus-4"]
    assert "2024-01-01 00:30:00" in outputs["python speeds.py\n"]
    assert "2024-01-01 00:50:00" in outputs["python make_feed.py 2\npython speeds.py\n"]
    assert outputs["upstream commits ./latest\n"].count(" 595 ") == 2
    latest = pl.read_delta(str(tmp_path / "latest"))
    assert latest.height == 5
    assert str(latest["timestamp"].min()).startswith("2024-01-01 01:19:50")
    speeds = pl.read_delta(str(tmp_path / "speeds"))
    assert speeds["positions"].to_list() == [60] * 5
    assert {str(end)[:19] for end in speeds["window_end"]} == {"2024-01-01 00:50:00"}
    golden.check("pages", "tutorial", golden.tables(tmp_path))
