"""Checks of Java, Python and Spark. This file imports the standard library only: the Makefile runs it by its path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

SUPPORTED_JAVA = (17, 21)
SUPPORTED_PYTHON = ((3, 10), (3, 13))  # from, up to but not including

_INSTALL = (
    "install a JDK 17 or 21 (on Debian and Ubuntu: apt install openjdk-17-jdk-headless) and set JAVA_HOME to it or "
    "put it on the PATH"
)
_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')
_RELEASE = re.compile(r'^JAVA_VERSION="([0-9]+)', re.MULTILINE)
_VECTORS = "jdk.incubator.vector"
SUPPORTED_SPARK = "4.2."
_INSTALL_SPARK = "install 'pyspark>=4.2,<4.3'"
_CORE = re.compile(r"spark-core_[0-9.]+-([0-9.]+)\b.*\.jar")


def java_program() -> str | None:
    """Return the Java that Spark starts: ``$JAVA_HOME/bin/java``, else ``java`` on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java")


def java_problem() -> str | None:
    """Return why Spark cannot start Java, or None if it can."""
    java = java_program()
    if not java:
        return f"There is no Java, and Spark runs on Java: {_INSTALL}."
    if shutil.which(java) is None:
        home = os.environ.get("JAVA_HOME")
        return f"JAVA_HOME is {home}, but there is no {java}: correct JAVA_HOME, or {_INSTALL}."
    if _does_by_its_release(java):
        return None
    # One start of the JVM answers both questions: Spark's launcher asks for this module, which a reduced runtime lacks.
    code, said = _run(java, "--add-modules", _VECTORS, "-version")
    version = _major(said)
    if version is None:
        code_plain, said = _run(java, "-version")
        version = _major(said) if code_plain == 0 else None
    if version is None:
        return f"{java} does not say its version: {_INSTALL}."
    if version not in SUPPORTED_JAVA:
        return f"{java} is Java {version}, and Spark 4.2 runs on Java 17 or 21: {_INSTALL}."
    if code != 0:
        return f"{java} is a reduced runtime without the module {_VECTORS}, which Spark needs: {_INSTALL}."
    return None


def python_problem() -> str | None:
    """Return why this project cannot run on this Python, in one sentence, or None if it can."""
    low, high = SUPPORTED_PYTHON
    if low <= sys.version_info[:2] < high:
        return None
    found = ".".join(map(str, sys.version_info[:2]))
    return f"This is Python {found}, and this project runs on Python 3.10 to 3.12: install one of them."


def spark_problem() -> str | None:
    """Return why this project cannot run on the Spark that is installed here, or None if it can."""
    try:
        from pyspark.version import __version__ as found
    except ImportError:
        return f"There is no PySpark here, and UpStream runs on Spark 4.2: {_INSTALL_SPARK}."
    if not found.startswith(SUPPORTED_SPARK):
        return f"This is Spark {found}, and UpStream runs on Spark 4.2: {_INSTALL_SPARK}."
    home = os.environ.get("SPARK_HOME", "")
    jars = os.path.join(home, "jars")
    cores = [match[1] for name in os.listdir(jars) if (match := _CORE.match(name))] if os.path.isdir(jars) else []
    if any(not each.startswith(SUPPORTED_SPARK) for each in cores):
        return (
            f"SPARK_HOME is {home}, which is Spark {cores[0]}, and UpStream runs on Spark 4.2: unset SPARK_HOME to use "
            f"the installed PySpark {found}, or set it to a Spark 4.2."
        )
    return None


def _does_by_its_release(java: str) -> bool:
    """Return whether the file ``release`` of a JDK shows that Spark runs on it, which spares the start of a JVM."""
    try:
        with open(os.path.join(os.path.dirname(os.path.realpath(java)), "..", "release"), encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError):
        return False
    version = _RELEASE.search(text)
    return version is not None and int(version[1]) in SUPPORTED_JAVA and _VECTORS in text


def _run(*command: str) -> tuple[int, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stderr + done.stdout


def _major(said: str) -> int | None:
    match = _VERSION.search(said)
    return int(match.group(1)) if match else None


def _main() -> int:
    problems = [problem for problem in (python_problem(), java_problem()) if problem]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(_main())
