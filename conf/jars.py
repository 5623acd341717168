"""Delta's jars for Spark, fetched once by Ivy and then found in its cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import EnvironmentMissingError
from .progress import progress

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
# Globs of PACKAGE's dependencies that Spark has or that are unused here (Unity Catalog): 31 of 33 jars, 78 of 87 MB.
# A test runs Delta's commands without them. Ivy refuses `*:*`: it would exclude the package itself.
EXCLUDES = "org.*:*,com.*:*,commons-*:*,javax.*:*,io.unitycatalog:*,io.airlift:*,io.delta:delta-kernel-*"
# As Ivy names them, with what they must contain: a file that another process has half written is not a jar.
JARS = {
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "io.delta_delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
}

# Ivy settings that a user may have, for a mirror or a cache elsewhere.
_PASSED_ON = ("spark.jars.ivy", "spark.jars.ivySettings", "spark.jars.repositories")


def ivy_home(settings: Mapping[str, str]) -> Path:
    """Return the folder of Ivy's cache: ``spark.jars.ivy``, or Spark's own default."""
    return Path(settings.get("spark.jars.ivy") or "~/.ivy2.5.2").expanduser().absolute()


def delta_jars(settings: Mapping[str, str]) -> list[str]:
    """Return the paths of Delta's jars, fetched by Ivy if missing; none if Spark's own jar folder has Delta."""
    if any(spark_home().glob("jars/*delta-spark_*.jar")):
        return []
    home = ivy_home(settings)
    found, said = _found(home), ""
    if found is None:
        home.mkdir(parents=True, exist_ok=True)
        with open(home / "upstream.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of one test run may come here at once
            found = _found(home)
            if found is None:
                with progress("fetching Delta's jars: 9 MB, once"):
                    said = fetch(home, [PACKAGE], EXCLUDES, settings)
                found = _found(home)
    if found is None:
        raise EnvironmentMissingError(
            f"the jars of {PACKAGE} are not in {home / 'jars'} and could not be fetched ({_reason(said)})",
            hint="connect to the network for this first run, or point spark.jars.ivySettings at your mirror, "
            f"or copy {' and '.join(JARS)} to that folder",
        )
    return found


def _found(home: Path) -> list[str] | None:
    paths = [home / "jars" / name for name in JARS]
    for path, digest in zip(paths, JARS.values(), strict=True):
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            return None
    return [str(path) for path in paths]


def fetch(home: Path, packages: Sequence[str], excludes: str = "", settings: Mapping[str, str] | None = None) -> str:
    """Let Ivy fetch packages and their dependencies into ``home/jars``, and return its output.

    `excludes` are globs separated by commas. Of `settings`, those about Ivy apply, such as mirrors and proxies.
    """
    # spark-submit resolves the packages, with the user's own defaults and Ivy settings, and runs an empty script.
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]"]
    for name in _PASSED_ON:
        if settings and settings.get(name):
            command += ["--conf", f"{name}={settings[name]}"]
    command += ["--conf", f"spark.jars.ivy={home}", "--packages", ",".join(packages)]
    if excludes:
        command += ["--exclude-packages", excludes]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    environment["PYSPARK_PYTHON"] = environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "nothing.py")
        script.touch()
        done = subprocess.run(
            [*command, str(script)], env=environment, capture_output=True, text=True, errors="replace", check=False
        )
    return done.stdout + done.stderr


def _reason(said: str) -> str:
    for line in said.splitlines():
        if "unresolved dependency" in line or "Host " in line or "Error" in line or "FAILED" in line:
            return line.strip().rstrip(".")
    return "the downloaded files are not the published ones" if "artifacts copied" in said else "Ivy did not say why"


def spark_home() -> Path:
    """Return the folder of Spark: ``SPARK_HOME``, or that of the installed PySpark."""
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    import pyspark

    return Path(pyspark.__path__[0])


def _main() -> int:
    """Fetch the jars beforehand: ``python -m upstream.conf.jars``."""
    try:
        delta_jars({})
    except EnvironmentMissingError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
