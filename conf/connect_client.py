"""Sessions that are clients of Spark Connect, and the paths that their server is given."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .errors import EnvironmentMissingError
from .locations import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PACKAGES = ("grpc", "grpc_status", "zstandard")


def is_client(spark: SparkSession) -> bool:
    """Return whether a session is a client of Spark Connect, and so has no JVM in its process to call."""
    return getattr(spark, "_jsparkSession", None) is None


def path_on_server(spark: SparkSession, path: str) -> str:
    """Return a path for the driver; a client's becomes absolute, since its server has another working directory."""
    if not is_client(spark) or is_remote(path) or path.startswith("file:"):
        return path

    return os.path.abspath(os.path.expanduser(path))


def check_client_packages() -> None:
    """Raise EnvironmentMissingError unless the packages for a client of Spark Connect are installed."""
    lacking = [name for name in _PACKAGES if find_spec(name) is None]
    if lacking:
        raise EnvironmentMissingError(
            f"Spark Connect needs {', '.join(lacking)}, which this Python does not have",
            expected="the packages of the extra `connect`",
            hint='install "pyspark-upstream[connect]"',
        )
