"""Programs that run to their end: the command line, scripts, benchmarks."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from .places import ROOT

Done = subprocess.CompletedProcess[str]
COMMAND = (sys.executable, "-c", "import sys; sys.argv[0] = 'upstream'; from upstream.cli.main import main; main()")


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
    """Run a command; its output is text, and its exit code is the test's to look at."""
    given = [*map(str, command)]
    return subprocess.run(given, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def run_command(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Done:
    """Run `upstream` as a person does."""
    return run(*COMMAND, *arguments, cwd=cwd, env={**os.environ, **environment})


def run_python(program: str, *arguments: str | Path, cwd: Path | None = None, **environment: str | None) -> Done:
    """Run a program in a Python of its own; None takes a variable out of its environment."""
    given = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    return run(sys.executable, "-c", textwrap.dedent(program), *arguments, cwd=cwd, env=given)


def run_benchmark(name: str, *arguments: str | Path) -> Done:
    """Run a module of `benchmarks` from the checkout."""
    return run(sys.executable, "-m", f"benchmarks.{name}", *arguments, cwd=ROOT)
