"""The command line in this process: a process for each command would cost half a second of imports."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from kit.programs import Done

from upstream.cli.main import main


def command(*arguments: str | Path, cwd: Path | None = None, given: str = "", **environment: str) -> Done:
    """Run `upstream` as a person does, with what is given on standard input."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["upstream", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.StringIO(given))
        for name, value in environment.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            main()
    texts = [each.buffer.getvalue().decode() for each in (output, errors)]  # type: ignore[attr-defined]
    return Done(arguments, int(ended.value.code or 0), *texts)


def done(*arguments: str | Path, cwd: Path | None = None, given: str = "", **environment: str) -> str:
    """Run a command that succeeds, and return what it prints."""
    found = command(*arguments, cwd=cwd, given=given, **environment)
    assert found.returncode == 0, found.stderr
    return found.stdout


def refused(*arguments: str | Path, cwd: Path | None = None, code: int = 2, **environment: str) -> str:
    """Run a command that fails with a code and a sentence, and return the sentence in one line."""
    found = command(*arguments, cwd=cwd, **environment)
    assert found.returncode == code, found.stdout + found.stderr
    assert "Traceback" not in found.stderr
    return " ".join(found.stderr.split())
