"""Environments of peers that cannot share ours, made on demand below ``benchmarks/.cache``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["CACHE", "flink_kafka_jar", "flink_parquet_jars", "flink_python", "flink_sink_jar", "spark_kafka_jars"]

HERE = Path(__file__).parent
CACHE = HERE / ".cache"
_FLINK = "apache-flink==2.3.0"
_FLINK_KAFKA = "org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0"
_FLINK_PARQUET = "org.apache.flink:flink-sql-parquet:2.3.0"
_SPARK_KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
# Spark 4.2's own is not published; what the source needs of it is in the last one that is.
_TOKENS, _TOKENS_VERSION = "org.apache.spark:spark-token-provider-kafka-0-10_2.13", "4.0.0"
_WITH_SPARK = "org.apache.kafka:*,org.apache.hadoop:*,org.slf4j:*,com.*:*,org.scala-lang*:*,io.*:*,javax.*:*"


def flink_python() -> Path:
    """Return the interpreter of an environment with Flink; the first call downloads it (about 600 MB)."""
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
    """Return a jar with the sink that collects Flink's result, compiled against the installed Flink."""
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


def flink_kafka_jar() -> Path:
    """Return the jar of Flink's Kafka connector; download it if it is missing."""
    (jar,) = _jars("flink-kafka", [_FLINK_KAFKA])
    return jar


def flink_parquet_jars() -> list[Path]:
    """Return the jars that Flink needs to read Parquet: its own, which is downloaded if missing, and Spark's Hadoop."""
    import pyspark

    return [
        *_jars("flink-parquet", [_FLINK_PARQUET]),
        *sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")),
    ]


def spark_kafka_jars() -> list[Path]:
    """Return the jars of Spark's Kafka source; download them if they are missing."""
    tokens = _jars("spark-kafka-tokens", [f"{_TOKENS}:{_TOKENS_VERSION}"], _WITH_SPARK)
    return [*_jars("spark-kafka", [_SPARK_KAFKA], _TOKENS), *tokens]


def _jars(name: str, packages: Sequence[str], excludes: str = "") -> list[Path]:
    from upstream.conf.jars import fetch

    home = CACHE / name
    if not any(home.glob("jars/*.jar")):
        home.mkdir(parents=True, exist_ok=True)
        output = fetch(home, packages, excludes)
        if not any(home.glob("jars/*.jar")):
            raise SystemExit(f"{packages[0]} could not be fetched:\n" + "\n".join(output.splitlines()[-10:]))
    return sorted(home.glob("jars/*.jar"))


def _jdk(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        raise SystemExit(f"{tool} is missing: the Flink benchmark needs a full JDK on the PATH")
    return found
