"""The Python of Spark's workers: it skips Spark's archives where the same pyspark is installed as files."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_VARIABLE = "UPSTREAM_PYTHON"


def _script() -> str | None:
    """Return the program that starts a worker, or None if workers need Spark's archives.

    Archives cost compilation in every process (0.5 s) and a directory read in every task (80 ms).
    """
    import pyspark

    script = Path(__file__).with_name("worker-python")
    installed = Path(str(pyspark.__file__)).parent
    spark_home = os.environ.get("SPARK_HOME")
    if os.name != "posix" or not os.access(script, os.X_OK) or not installed.is_dir():
        return None
    if not (installed / "jars").is_dir() or (spark_home and Path(spark_home).resolve() != installed.resolve()):
        return None
    return str(script)


def use_installed_pyspark() -> None:
    """Let Spark's workers run this Python, unless the user has named another. Call it before Spark starts."""
    script = _script()
    if script is not None:
        os.environ.setdefault(_VARIABLE, sys.executable)
    # Functions run by the first; data sources that Spark finds by itself, with all that they start, by the second.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        named = os.environ.get(name)
        if named is None or is_this_python(shutil.which(named)):
            os.environ[name] = script or sys.executable


def is_this_python(path: str | None) -> bool:
    """Return whether a program is this Python, with the packages of this environment."""
    # A virtual environment's python is a link to one that lacks the environment's packages.
    return (
        path is not None
        and os.path.dirname(path) == os.path.dirname(sys.executable)
        and os.path.samefile(path, sys.executable)
    )


def environment_of_workers() -> dict[str, str]:
    """Return the settings by which workers on other machines find their Python; none unless their program is ours."""
    script, python = _script(), os.environ.get(_VARIABLE)
    ours = python is not None and script is not None and os.environ.get("PYSPARK_PYTHON") == script
    return {f"spark.executorEnv.{_VARIABLE}": python} if ours and python is not None else {}


def python_of(worker: str | None) -> str | None:
    """Return the Python that a worker's program runs: the program itself, unless the program is ours."""
    return os.environ.get(_VARIABLE) if worker is not None and worker == _script() else worker
