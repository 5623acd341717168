"""One Spark session for all tests that need one; no query outlives its test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings
from kit import modules

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import SparkSession


# A busy machine is no reason to fail. At one's desk each run tries other examples, as many as a test asks for; CI tries
# the same ones as the run before, so that a change is judged by what it changed.
settings.register_profile("other", deadline=None)
settings.register_profile("few", deadline=None, max_examples=15)
settings.register_profile("same", deadline=None, derandomize=True, max_examples=25)
# For tools/mutants.py a failure is enough: no smaller example of it is looked for.
settings.register_profile(
    "mutants", deadline=None, derandomize=True, max_examples=20, phases=(Phase.explicit, Phase.generate)
)
EXAMPLES = os.environ.get("UPSTREAM_EXAMPLES", "other")
settings.load_profile(EXAMPLES)


modules.name_benchmarks()

# Their properties look at the same shards from several sides, and CI's examples are the same in each run: fewer of each
# find what a change breaks. At one's desk there are as many as a test asks for.
OVERLAPPING = {
    "operators": ("grouped", "joins", "queue", "reorder", "windows"),
    "queries": ("deltas", "hosting", "placing", "relations"),
}
FEWER = 12

HEAVY = ("simulation", "cluster", "fault", "examples", "cli", "benchmarks")


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what a fixture or a folder starts, so that `-m` leaves out all of it; what takes longest comes first, lest
    one process ends alone.
    """
    for item in items:
        folder, *below = item.path.relative_to(Path(__file__).parent).parts
        # The models are functions of numbers: their tests run no benchmark.
        if folder == "benchmarks" and below[0] != "models":
            item.add_marker("benchmark")
        if folder == "readers":
            item.add_marker("server")
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
        if "broker" in fixtures:
            item.add_marker(pytest.mark.broker)
        if EXAMPLES != "other":
            overlap = EXAMPLES == "same" and not set(below[:1]).isdisjoint(OVERLAPPING.get(folder, ()))
            _cap_examples(item, FEWER if overlap else settings.default.max_examples)
    items.sort(key=_turn)


def _cap_examples(item: pytest.Item, most: int) -> None:
    """Try no more examples than so many, however many the test asks for."""
    function: Any = getattr(item, "obj", None)
    own = getattr(function, "_hypothesis_internal_use_settings", None)
    if own is not None and own.max_examples > most:
        function._hypothesis_internal_use_settings = settings(own, max_examples=most)


def _turn(item: pytest.Item) -> int:
    """When a test's turn is: first come files of a few tests that take minutes each."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return HEAVY.index(folder) if folder in HEAVY else len(HEAVY)


@pytest.fixture(autouse=True)
def _stop_queries(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stop every streaming query that a test left running."""
    yield
    if "spark" in request.fixturenames:
        made: SparkSession = request.getfixturevalue("spark")
        for query in made.streams.active:
            query.stop()


@pytest.fixture(scope="session")
def benchmark_module() -> Callable[[str], ModuleType]:
    """Imports a module of the package `benchmarks` in the test that needs it: some import Spark."""
    return modules.benchmark


@pytest.fixture(scope="session")
def outside(benchmark_module: Callable[[str], ModuleType]) -> ModuleType:
    """The module `benchmarks.outside`."""
    return benchmark_module("outside")


@pytest.fixture(scope="session")
def tool_module() -> Callable[[str], ModuleType]:
    """Gives a module of the folder `tools` by its name."""

    return modules.tool


@pytest.fixture(scope="session")
def kafka_tool(tool_module: Callable[[str], ModuleType]) -> ModuleType:
    """The module `tools/kafka.py`."""
    return tool_module("kafka")


@pytest.fixture(scope="session")
def broker(kafka_tool: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker for the whole session; a test that kills it starts it again."""
    made = kafka_tool.Broker(tmp_path_factory.mktemp("kafka"))
    with made:
        yield made
