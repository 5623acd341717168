import json
import re

import pytest
from kit.programs import run_python
from kit.registries import begun
from kit.sink import Sink

from upstream.cli.table_commands import commands

from .in_process import refused

ARGUMENTS = {"rebucket": ["5"], "keep": ["latest 2"], "erase": ["--key", "1"]}
NAMES = [command.callback.__name__ for command in commands.registered_commands if command.callback]
NAMES.sort(key=lambda name: name in ARGUMENTS)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_what_is_no_table_is_a_sentence(name, tmp_path):
    said = refused(name, "nowhere", *ARGUMENTS.get(name, []), cwd=tmp_path, code=1)
    assert re.search("there is no table .*nowhere", said)


@pytest.mark.parametrize("name", ["show", "maintain", "status", "history"])
def test_a_table_that_cannot_be_opened_is_a_sentence(name, tmp_path):
    damaged = tmp_path / "damaged" / "_delta_log"
    damaged.mkdir(parents=True)
    (damaged / f"{0:020d}.json").write_text("{")
    assert "damaged cannot be opened" in refused(name, "damaged", cwd=tmp_path, code=1)


def test_none_needs_java(tmp_path):
    """In a process of their own: in this one Spark may run already."""
    assert len(NAMES) == 10
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b")])])
    program = """
        import json, sys
        from typer.testing import CliRunner
        from upstream.cli.main import app
        results = [CliRunner().invoke(app, arguments) for arguments in json.loads(sys.argv[1])]
        print(json.dumps([[result.exit_code, result.output] for result in results]))
    """
    asked = [["queries", begun(tmp_path), "list"], *([name, "table", *ARGUMENTS.get(name, [])] for name in NAMES)]
    ran = run_python(program, json.dumps(asked), cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert ran.returncode == 0, ran.stderr
    for (name, *_), (code, output) in zip(asked, json.loads(ran.stdout), strict=True):
        assert (code, bool(output.strip())) == (0, True), (name, output)
    assert sink.latest() == {2: (10, "b")}
