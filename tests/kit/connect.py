"""The environment of programs that use Spark Connect: what PySpark needs for it lies beside the tested environment."""

from __future__ import annotations

from .places import ROOT


def connect_environment() -> dict[str, str]:
    """Variables for a program in this Python that is a client of Spark Connect, or runs pipelines."""
    found = [*(ROOT / ".cache" / "connect").glob("lib/python*/site-packages")]
    assert found, "make .cache/connect/.locked installs what PySpark needs for Spark Connect"
    return {
        "PYTHONPATH": str(found[0]),
        # PySpark's own tests have servers take a free port by it.
        "SPARK_TESTING": "yes",
    }
