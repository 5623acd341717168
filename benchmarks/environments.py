"""Environments of peers that cannot share ours, made on demand below ``benchmarks/.cache``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["CACHE", "flink_python", "flink_sink_jar"]

HERE = Path(__file__).parent
CACHE = HERE / ".cache"
_FLINK = "apache-flink==2.3.0"


def flink_python() -> Path:
    """The interpreter of an environment with Flink in it; the first call fetches it (about 600 MB)."""
    home = CACHE / "flink"
    python, done = home / "bin" / "python", home / ".installed"
    if not done.exists():
        print(f"Making an environment for {_FLINK} (once, some minutes) …", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        quiet = ["--quiet", "--disable-pip-version-check"]
        subprocess.run([str(python), "-m", "pip", "install", *quiet, "setuptools<81", "wheel"], check=True)
        subprocess.run([str(python), "-m", "pip", "install", *quiet, _FLINK], check=True)
        done.write_text(_FLINK)
    return python


def flink_sink_jar() -> Path:
    """A jar with the sink that collects Flink's result, compiled against the Flink that was installed."""
    source = HERE / "flink" / "CollectedSinkFactory.java"
    jar = CACHE / "flink-sink.jar"
    if jar.exists() and jar.stat().st_mtime > source.stat().st_mtime:
        return jar
    libraries = next((CACHE / "flink").glob("lib/python*/site-packages/pyflink/lib"))
    build = CACHE / "flink-sink"
    shutil.rmtree(build, ignore_errors=True)
    services = build / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.flink.table.factories.Factory").write_text("CollectedSinkFactory\n")
    classes = ["-cp", f"{libraries}/*", "-d", str(build), str(source)]
    subprocess.run([_jdk("javac"), "-nowarn", *classes], check=True)
    subprocess.run([_jdk("jar"), "cf", str(jar), "-C", str(build), "."], check=True)
    return jar


def _jdk(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        raise SystemExit(f"{tool} is missing: the Flink benchmark needs a full JDK on the PATH")
    return found
