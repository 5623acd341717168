"""The commands on a table: all of them are there, none needs Java, and one sentence says what each does."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.programs import run_command
from kit.sink import Sink

from upstream.cli.table_commands import commands

NAMES = {"show", "check", "repair", "rebucket", "keep", "erase", "maintain", "release", "status", "history"}
ARGUMENTS = {"rebucket": ["5"], "keep": ["latest 2"], "erase": ["--key", "1"]}


def test_each_is_here() -> None:
    assert {command.callback.__name__ for command in commands.registered_commands if command.callback} == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_without_java(name: str, tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b")])])
    done = run_command(name, "table", *ARGUMENTS.get(name, []), cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert sink.latest() == ({2: (10, "b")} if name == "erase" else {1: (10, "a"), 2: (10, "b")})
