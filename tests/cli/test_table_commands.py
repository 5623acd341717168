"""The commands on a table: one sentence says what each does, and none needs Java."""

import json
from pathlib import Path

from kit.programs import run_python
from kit.sink import Sink

from upstream.cli.table_commands import commands

ARGUMENTS = {"rebucket": ["5"], "keep": ["latest 2"], "erase": ["--key", "1"]}


def test_all_without_java(tmp_path: Path) -> None:
    """In a process of their own: in this one Spark may run already."""
    names = [command.callback.__name__ for command in commands.registered_commands if command.callback]
    names.sort(key=lambda name: name in ARGUMENTS)
    assert len(names) == 10
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b")])])
    program = """
        import json, sys
        from typer.testing import CliRunner
        from upstream.cli.main import app
        results = [CliRunner().invoke(app, arguments) for arguments in json.loads(sys.argv[1])]
        print(json.dumps([[result.exit_code, result.output] for result in results]))
    """
    asked = [[name, "table", *ARGUMENTS.get(name, [])] for name in names]
    ran = run_python(program, json.dumps(asked), cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert ran.returncode == 0, ran.stderr
    for name, (code, output) in zip(names, json.loads(ran.stdout), strict=True):
        assert (code, bool(output.strip())) == (0, True), (name, output)
    assert sink.latest() == {2: (10, "b")}
