"""The Python that Spark's workers are.

Spark puts archives of its own (pyspark.zip, py4j, a jar) before the installed packages. Python compiles what it imports
from an archive in every process, and reads the directory of every archive anew in every task: 0.5 s for each process,
80 ms for each task. Where the same pyspark is installed as files, workers go without the archives.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["environment_of_workers", "python_of", "use_installed_pyspark"]

_VARIABLE = "UPSTREAM_PYTHON"


def _script() -> str | None:
    """Return the program that starts a worker, or None where workers cannot do without the archives."""
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
        os.environ.setdefault(name, script or sys.executable)


def environment_of_workers() -> dict[str, str]:
    """Return the settings by which workers on other machines find their Python; none unless their program is ours."""
    script, python = _script(), os.environ.get(_VARIABLE)
    ours = python is not None and script is not None and os.environ.get("PYSPARK_PYTHON") == script
    return {f"spark.executorEnv.{_VARIABLE}": python} if ours and python is not None else {}


def python_of(worker: str | None) -> str | None:
    """Return the Python that a worker's program runs: the program itself, unless the program is ours."""
    return os.environ.get(_VARIABLE) if worker is not None and worker == _script() else worker
