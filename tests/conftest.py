"""One Spark session for all tests that need one; no query outlives its test."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings
from kit import modules, tiers
from kit.places import ROOT
from kit.scheduler import Scheduler, scope_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# `UPSTREAM_EXAMPLES` is the most examples that a property tries, or `mutants`; without it, as many as each test wants.
# A busy machine is no reason to fail. For tools/mutants.py a failure is enough: it needs no smaller example.
EXAMPLES = os.environ.get("UPSTREAM_EXAMPLES", "")
settings.register_profile("other", deadline=None, max_examples=int(EXAMPLES) if EXAMPLES.isdigit() else 100)
settings.register_profile(
    "mutants", deadline=None, derandomize=True, max_examples=20, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("mutants" if EXAMPLES == "mutants" else "other")

modules.name_benchmarks()

# No test's JVM makes an archive of classes in the background, unless the run's own options decide about it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-Xshare:auto")

# These files take minutes and few processors at a time: they start first, lest one process ends alone.
HEAVY = ("cluster", "fault", "examples", "docs", "cli", "connect", "simulation", "benchmarks")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", action="append", choices=tiers.TIERS, help="run this tier of the tests; may be repeated")
    parser.addoption("--slice", type=int, default=None, help="the slice to run instead of the one in tests/slice")


class Selection:
    """The tiers of one run. The process that hands out tests chooses once, for all that run them."""

    def __init__(self, config: pytest.Config) -> None:
        given: dict[str, Any] = getattr(config, "workerinput", {})
        self.tiers: list[str] = config.getoption("--tier") or []
        number: int | None = config.getoption("--slice")
        self.slice = tiers.read_slice(ROOT) if number is None else number
        self.base, self.changed = given.get("change", ("", []))
        self.left: list[str] = []
        if "touched" in self.tiers and "change" not in given:
            self.base, self.changed = tiers.changes(ROOT)

    def choose(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Return the tests of the tiers."""
        if not self.tiers:
            return items
        plain = {item for item in items if not any(item.get_closest_marker(each) for each in tiers.COSTLY)}
        listed = tiers.read_core(ROOT)
        core = {item for item in items if not listed.isdisjoint(tiers.names_of(item.path.relative_to(ROOT), item.name))}
        chosen = set[pytest.Item]()
        if {"plain", "core"} & set(self.tiers):
            chosen |= plain
        if "core" in self.tiers:
            chosen |= core
        rest: dict[str, list[pytest.Item]] = {}
        for item in items:
            if item not in plain and item not in core and not item.get_closest_marker("long"):
                rest.setdefault(str(item.path.relative_to(ROOT)), []).append(item)
        seconds = tiers.seconds_of({file: [each.name for each in own] for file, own in rest.items()}, ROOT)
        files: set[str] = set()
        if "touched" in self.tiers:
            tests = {str(each.relative_to(ROOT)): each.read_text() for each in (ROOT / "tests").rglob("*.py")}
            near = [file for file in tiers.mirrors(self.changed, tests) if file in rest]
            taken, self.left = tiers.within_budget(near, seconds)
            files |= set(taken)
        if "slice" in self.tiers:
            files |= tiers.slice_of(rest, seconds, self.slice)
        chosen |= {item for file in files for item in rest[file]}
        return [item for item in items if item in chosen]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SELECTION] = Selection(config)


SELECTION = pytest.StashKey[Selection]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the change to a process that runs tests."""
    chosen: Selection = node.config.stash[SELECTION]
    node.workerinput["change"] = (chosen.base, chosen.changed)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand back what the budget of the touched tests left out."""
    report: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if report is not None:
        report["left"] = session.config.stash[SELECTION].left


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[SELECTION].left = getattr(node, "workeroutput", {}).get("left", [])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    return Scheduler(config, log)


def pytest_report_header(config: pytest.Config) -> list[str]:
    chosen = config.stash[SELECTION]
    lines = [f"tiers: {', '.join(chosen.tiers) or 'all'}"]
    if "touched" in chosen.tiers:
        since = (
            f"{len(chosen.changed)} files changed since {chosen.base}" if chosen.base else "no history of tests/slice"
        )
        lines.append(f"touched: {since}")
    if "slice" in chosen.tiers:
        lines.append(f"slice: {chosen.slice % tiers.SLICES} of {tiers.SLICES}; repeat: make test SLICE={chosen.slice}")
    seed = config.getoption("--hypothesis-seed", None)
    return [*lines, *([f"seed: {seed}; repeat: make test SEED={seed}"] if seed else [])]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the touched files for which `tiers.TOUCHED_S` has no room."""
    left = config.stash[SELECTION].left
    if left:
        terminalreporter.section("touched, left to their slices")
        terminalreporter.write_line(f"{len(left)} files; run them: .venv/bin/pytest {' '.join(left)}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
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


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by what its fixtures or its folder start, before any plugin looks at its marks."""
    folder, *below = item.path.relative_to(ROOT / "tests").parts
    # The models are functions of numbers: their tests run no benchmark.
    if folder == "benchmarks" and below[0] != "models":
        item.add_marker("benchmark")
    if folder == "readers":
        item.add_marker("server")
    for each in {"spark", "broker"} & set(getattr(item, "fixturenames", ())):
        item.add_marker(each)
    if EXAMPLES.isdigit():
        _cap_examples(item, int(EXAMPLES))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of the tiers, and put the longest first."""
    chosen = config.stash[SELECTION].choose(items)
    left = set(items) - set(chosen)
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = sorted(chosen, key=_turn)


def _cap_examples(item: pytest.Item, most: int) -> None:
    """Try at most so many examples, however many the test wants."""
    function: Any = getattr(item, "obj", None)
    own = getattr(function, "_hypothesis_internal_use_settings", None)
    if own is not None and own.max_examples > most:
        function._hypothesis_internal_use_settings = settings(own, max_examples=most)


def _turn(item: pytest.Item) -> int:
    """Return the turn of a test: first those that share a session, then files of a few tests that take minutes each."""
    file = item.path.relative_to(ROOT / "tests")
    if scope_of(str(file)) == "sessions":
        return -1
    return HEAVY.index(file.parts[0]) if file.parts[0] in HEAVY else len(HEAVY)


@pytest.fixture(autouse=True)
def _stop_queries(request):
    """Stop every streaming query that a test left running."""
    yield
    if "spark" in request.fixturenames:
        made: SparkSession = request.getfixturevalue("spark")
        for query in made.streams.active:
            query.stop()


@pytest.fixture(scope="session")
def benchmark_module():
    """Imports a module of the package `benchmarks` in the test that needs it: some import Spark."""
    return modules.benchmark


@pytest.fixture(scope="session")
def outside(benchmark_module):
    """The module `benchmarks.outside`."""
    return benchmark_module("outside")


@pytest.fixture(scope="session")
def tool_module():
    """Gives a module of the folder `tools` by its name."""

    return modules.tool


@pytest.fixture(scope="session")
def kafka_tool(tool_module):
    """The module `tools/kafka.py`."""
    return tool_module("kafka")


@pytest.fixture(scope="session")
def broker(kafka_tool, tmp_path_factory):
    """A broker for the whole session; a test that kills it starts it again."""
    made = kafka_tool.Broker(tmp_path_factory.mktemp("kafka"))
    with made:
        yield made
