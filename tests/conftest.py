"""One Spark session for all tests that need one; no query outlives its test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pathlib import Path

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
