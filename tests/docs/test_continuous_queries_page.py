"""The commands and statements of the how-to page on continuous queries; its Python runs on Spark with other pages."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from deltalake import write_deltalake
from kit.continuous import BUSES, CATALOG
from kit.places import ROOT
from typer.testing import CliRunner

from upstream.cli import sql_statements
from upstream.cli.main import app
from upstream.cli.sql_statements import Create, Describe, Select
from upstream.queries.language import bind
from upstream.queries.registry.changes import Change
from upstream.queries.registry.editing import record
from upstream.queries.registry.opening import define_stream, opened
from upstream.queries.registry.registry import registry_now

PAGE = (ROOT / "docs" / "how-to" / "continuous-queries.md").read_text(encoding="utf-8")
COMMANDS, RELATIONS, SHELL = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
(PROMPT,) = (each for each in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if "upstream=>" in each)
MEANS = "SELECT vehicle_id, AVG(speed) AS speed FROM buses [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY vehicle_id"


def lines(block: str) -> list[list[str]]:
    """Return the commands of a block, each as its words."""
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


def test_the_commands_change_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = str(tmp_path / "lake_checkpoint")
    opened(checkpoint, str(tmp_path / "lake"), None)
    define_stream(checkpoint, BUSES)
    record(checkpoint, Change("register", "means", text=MEANS))
    shown = ""
    for program, *words in lines(COMMANDS):
        assert program == "upstream"
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        shown = result.output
    assert "fast" in shown
    assert "nobody reads it" in shown
    queries = registry_now(checkpoint).queries
    assert {name: (each.weight, each.active) for name, each in queries.items()} == {
        "means": (1.0, False),
        "fast": (2.0, True),
    }


def test_the_commands_declare_refresh_and_drop_a_relation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened(str(tmp_path / "lake_checkpoint"), str(tmp_path / "lake"), None)
    said: list[str] = []
    for number, (_, *words) in enumerate(lines(RELATIONS)):
        write_deltalake("depots", pa.table({"vehicle_id": [number], "depot": ["north"]}), mode="append")
        said.append(CliRunner().invoke(app, words, catch_exceptions=False).output.strip())
    assert said == ["relation depots: version 1", "refresh depots: version 2", "drop relation depots: version 3"]


def test_the_query_of_the_shell_is_one_and_its_options_are_there() -> None:
    ((program, command, *words),) = lines(SHELL)
    assert (program, command) == ("upstream", "sql")
    parsed = typer.main.get_command(app).commands["sql"].make_context("sql", list(words))  # type: ignore[attr-defined]
    (query,) = (each for each in words if each.startswith("SELECT"))
    assert query in parsed.params.values()
    assert bind(query, CATALOG).schema.names == ["route_id", "n"]


def test_what_the_prompt_takes() -> None:
    typed = "\n".join(line.partition("> ")[2] for line in PROMPT.splitlines())
    found, rest = sql_statements.split(typed + "\n")
    assert rest == ""
    create, select, describe = map(sql_statements.parse, found)
    assert isinstance(create, Create)
    assert create.weight == 2
    assert isinstance(select, Select)
    for each in (create, select):
        assert bind(each.text, CATALOG).schema.names
    assert describe == Describe()
