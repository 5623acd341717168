"""Statements against a registry, without the job that hosts the queries; `test_sql.py` has it."""

from collections.abc import Callable

import polars as pl
import pytest
from kit.continuous import CATALOG
from rich.console import Console

from upstream.api.queries import Queries, queries
from upstream.cli.sql_shell import Shell
from upstream.cli.sql_statements import parse
from upstream.conf.errors import OptionError, QueryRefusedError
from upstream.hosting.registry.edits import define_stream


class Finished:
    """A job that has no more to do; tables are written by the tests."""

    def __init__(self) -> None:
        self.starts = 0
        self.then: Callable[[], object] = lambda: None
        self._left = 1

    def start(self) -> None:
        self.starts += 1
        self._left = 1
        self.then()

    def has_ended(self) -> bool:
        self._left -= 1
        return self._left < 0


@pytest.fixture
def there(tmp_path):
    found = queries(checkpoint=tmp_path / "checkpoint", to=tmp_path / "lake")
    for stream in CATALOG.streams.values():
        if not stream.static:
            define_stream(found.checkpoint, stream)
    return found


class Typed:
    """A shell, what is typed there, and what it prints."""

    def __init__(self, there: Queries, *, terminal: bool = False) -> None:
        self.job = Finished()
        self.console = Console(width=300, force_terminal=terminal, highlight=False)
        self.shell = Shell(there, self.console, self.job)

    def __call__(self, text: str) -> str:
        with self.console.capture() as shown:
            assert self.shell.run(parse(text))
        return shown.get()


@pytest.fixture
def typed(there):
    return Typed(there)


COUNT = "SELECT sym, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY sym"


def test_a_materialized_view_is_registered_with_weight_and_buckets_and_the_job_starts(there, typed, tmp_path):
    shown = typed(f"CREATE MATERIALIZED VIEW counts WITH (weight = 2, buckets = 4) AS {COUNT}")
    assert str(tmp_path / "lake" / "counts") in shown
    assert there.list().select("name", "text", "weight", "active").rows() == [("counts", COUNT, 2.0, True)]
    assert typed.job.starts == 1


def test_alter_rest_and_drop(there, typed):
    typed(f"CREATE MATERIALIZED VIEW counts AS {COUNT}")
    typed("ALTER MATERIALIZED VIEW counts SET (weight = 3)")
    longer = COUNT.replace("1 HOUR", "2 HOURS")
    typed(f"ALTER MATERIALIZED VIEW counts AS {longer}")
    assert there.list().select("text", "weight").rows() == [(longer, 3.0)]
    typed("DEACTIVATE counts")
    assert there.list()["active"].to_list() == [False]
    assert "at rest" in typed("\\d")
    typed("ACTIVATE counts")
    assert there.list()["active"].to_list() == [True]
    typed("DROP MATERIALIZED VIEW counts")
    assert there.list().height == 0


def test_views_are_named_described_listed_and_dropped(there, typed):
    typed("CREATE VIEW dear AS SELECT sym, px FROM trade [NOW] WHERE px > 10")
    assert list(there.views()) == ["dear"]
    assert typed.job.starts == 0, "a view needs no job"
    assert [line.split() for line in typed("\\d dear").splitlines()[1:]] == [["sym", "string"], ["px", "double"]]
    typed("DROP VIEW dear")
    assert there.views() == {}
    typed("CREATE VIEW dear AS SELECT sym, px FROM trade [NOW] WHERE px > 10")
    typed(f"CREATE MATERIALIZED VIEW counts AS {COUNT}")
    lines = [line.split() for line in typed("\\d").splitlines()[1:]]
    assert ["trade", "stream"] in [line[:2] for line in lines]
    assert ["dear", "view"] in [line[:2] for line in lines]
    assert ["counts", "query", "1", "active"] in [line[:4] for line in lines]
    assert {"trade", "sym", "px", "dear", "counts"} <= set(typed.shell.names())


def test_explain_help_and_quit(typed):
    typed(f"CREATE MATERIALIZED VIEW counts AS {COUNT}")
    assert typed("EXPLAIN counts") == typed(f"EXPLAIN {COUNT}").replace("; shared with counts", "")
    assert "result: a relation" in typed("EXPLAIN counts")
    assert "CREATE MATERIALIZED VIEW" in typed("\\?")
    assert not typed.shell.run(parse("\\q"))


def test_what_is_refused_leaves_nothing(there, typed):
    for text, error in [
        ("SELECT nothing FROM trade", QueryRefusedError),
        ("CREATE MATERIALIZED VIEW a AS SELECT FROM", QueryRefusedError),
        ("DROP MATERIALIZED VIEW counts", OptionError),
        ("\\d counts", OptionError),
    ]:
        with pytest.raises(error):
            typed.shell.run(parse(text))
    assert there.list().height == 0
    assert typed.job.starts == 0


@pytest.mark.parametrize("terminal", [False, True])
def test_select_shows_the_result_and_is_forgotten(there, tmp_path, terminal):
    typed = Typed(there, terminal=terminal)
    table = tmp_path / "lake" / "select_1"
    frame = pl.DataFrame({"sym": ["a", "b"], "n": [1, 2], "_upstream_bucket": [0, 0]})
    typed.job.then = lambda: frame.write_delta(str(table))
    shown = typed(COUNT)
    assert "sym" in shown
    assert "_upstream" not in shown
    if not terminal:
        assert [line.split() for line in shown.splitlines()] == [["sym", "n"], ["+", "a", "1"], ["+", "b", "2"]]
    assert there.list().height == 0
    assert typed.shell.passing == [str(table)]


def test_a_query_that_is_deactivated_while_somebody_looks_is_an_error_with_the_reason(there, typed):
    typed.job.then = lambda: there.deactivate("select_1", reason="division by zero")
    with pytest.raises(OptionError, match="division by zero"):
        typed.shell.run(parse(COUNT))
    assert there.list().height == 0
