"""One Spark session for all tests that need one; no query outlives its test."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import SparkSession


# A busy machine is no reason to fail.
settings.register_profile("upstream", deadline=None)
settings.load_profile("upstream")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session made by ``upstream.session``: two cores, at least two partitions, UTC, UI off."""
    from upstream.conf.session import session

    home: Path = tmp_path_factory.mktemp("spark")
    made = session(
        "upstream tests",
        master="local[2]",
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.default.parallelism": 2,
            "spark.sql.warehouse.dir": home / "warehouse",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={home}",
        },
    )
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _stop_queries(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stop every streaming query that a test left running."""
    yield
    if "spark" in request.fixturenames:
        made: SparkSession = request.getfixturevalue("spark")
        for query in made.streams.active:
            query.stop()


@pytest.fixture(scope="session")
def outside() -> ModuleType:
    """The module `benchmarks.outside`, by its file: a folder of tests has the name of its package."""
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "outside.py"
    spec = importlib.util.spec_from_file_location("outside", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["outside"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
