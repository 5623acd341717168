"""Statements against a registry, without the job that hosts the queries; `test_sql.py` has it."""

from collections.abc import Callable

import polars as pl
import pytest
from kit.continuous import CATALOG
from rich.console import Console

from upstream.api.queries import Queries, queries
from upstream.cli.sql_shell import Shell, changes, completions, converse, grid, snapshot
from upstream.conf.errors import OptionError, QueryRefusedError
from upstream.hosting.edits import define_stream
from upstream.language.statements import CreateSource, parse


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
        self.sources: list[CreateSource] = []
        self.console = Console(width=300, force_terminal=terminal, highlight=False)
        self.shell = Shell(there, self.console, self.job, self.sources.append)

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
    typed("ALTER MATERIALIZED VIEW counts PAUSE")
    assert there.list()["active"].to_list() == [False]
    assert "paused" in typed("\\d")
    typed("ALTER MATERIALIZED VIEW counts RESUME")
    assert there.list()["active"].to_list() == [True]
    assert "kept its state" in typed("ALTER MATERIALIZED VIEW counts PAUSE KEEP STATE")
    assert "paused: state kept since 20" in typed("\\d")
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
    assert ["trade", "source"] in [line[:2] for line in lines]
    assert ["dear", "view"] in [line[:2] for line in lines]
    assert ["counts", "materialized", "view", "1", "active"] in [line[:5] for line in lines]
    assert {"trade", "sym", "px", "dear", "counts"} <= set(typed.shell.names())


def test_sources_and_tables_are_declared_shown_and_dropped_with_what_reads_them(there, typed, tmp_path):
    typed("CREATE SOURCE ships FROM 'ships/' WITH (key = 'mmsi')")
    assert [each.name for each in typed.sources] == ["ships"]
    pl.DataFrame({"sym": ["a"], "name": ["A"]}).write_delta(str(tmp_path / "names"))
    typed(f"CREATE TABLE names FROM '{tmp_path / 'names'}'")
    typed("CREATE VIEW named AS SELECT t.sym, n.name FROM trade [NOW] t JOIN names n USING (sym)")
    typed("CREATE MATERIALIZED VIEW n WITH (weight = 2) AS\nSELECT COUNT(*) AS n /* all */ FROM named")
    assert typed("SHOW CREATE n").strip() == (
        "CREATE MATERIALIZED VIEW n WITH (weight = 2) AS\nSELECT COUNT(*) AS n /* all */ FROM named;"
    )
    typed("CREATE MATERIALIZED VIEW n WITH (weight = 3) AS\nSELECT COUNT(*) AS n /* all */ FROM named")
    assert "weight = 2" in typed("SHOW CREATE n"), "a query that is there stays as it is"
    assert typed("SHOW CREATE names").strip() == f"CREATE TABLE names FROM '{tmp_path / 'names'}';"
    assert [line.split()[0] for line in typed("SHOW VIEWS").splitlines()[1:]] == ["named"]
    with pytest.raises(OptionError, match="in use"):
        typed("DROP TABLE names")
    typed("DROP TABLE names CASCADE")
    assert (there.tables(), there.views(), there.list().height) == ({}, {}, 0)


def test_functions_are_declared_shown_and_dropped_with_what_calls_them(there, typed):
    declared = "CREATE FUNCTION score(x DOUBLE) RETURNS DOUBLE AS 'kit.python_functions:doubled'"
    typed(declared)
    assert [line.split()[:2] for line in typed("SHOW FUNCTIONS").splitlines()[1:]] == [["score", "function"]]
    assert typed("SHOW CREATE score").strip() == declared + ";"
    assert "score" in typed.shell.names()
    described = [line.split() for line in typed("DESCRIBE Score").splitlines()[1:]]
    assert described == [["x", "double"], ["result", "double"]]
    typed("CREATE MATERIALIZED VIEW best AS SELECT MAX(score(px)) AS s FROM trade [NOW]")
    with pytest.raises(OptionError, match="in use by the query 'best'"):
        typed("DROP FUNCTION score")
    typed("DROP FUNCTION Score CASCADE")
    assert (typed("SHOW FUNCTIONS").count("score"), there.list().height) == (0, 0)


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


Talk = Callable[..., tuple[str, list[str], list[str]]]


class Idle:
    def start(self) -> None: ...

    def has_ended(self) -> bool:
        return True


@pytest.fixture
def talk(tmp_path):
    """Type lines; an exception is raised where a line would be read."""

    def _talk(*lines: str | type[BaseException]) -> tuple[str, list[str], list[str]]:
        console = Console(width=200, highlight=False)
        there = queries(checkpoint=tmp_path / "checkpoint", to=tmp_path / "lake")
        define_stream(there.checkpoint, CATALOG.streams["trade"])
        prompts: list[str] = []
        complaints: list[str] = []
        left = iter(lines)

        def line(prompt: str) -> str:
            prompts.append(prompt.strip())
            found = next(left, EOFError)
            if isinstance(found, str):
                return found
            raise found

        with console.capture() as shown:
            converse(Shell(there, console, Idle(), print), line, lambda error: complaints.append(str(error)))
        return shown.get(), prompts, complaints

    return _talk


def test_a_statement_goes_over_lines_until_its_semicolon(talk):
    shown, prompts, complaints = talk("CREATE VIEW v", "AS SELECT sym", "FROM trade [NOW];", "\\d v")
    assert prompts == ["upstream=>", "upstream->", "upstream->", "upstream=>", "upstream=>"]
    assert complaints == []
    assert shown.splitlines()[-1].split() == ["sym", "string"]


def test_an_error_is_reported_and_the_next_statement_runs(talk):
    shown, _, complaints = talk("DROP VIEW nothing; \\?", "\\?", "\\q", "\\?")
    assert len(complaints) == 1
    assert "no view 'nothing'" in complaints[0]
    assert shown.count("EXPLAIN query") == 1, "what stood behind the error is dropped, and nothing runs after \\q"


def test_ctrl_c_forgets_the_statement_and_the_end_of_input_ends(talk):
    _, prompts, complaints = talk("DROP VIEW", KeyboardInterrupt, "\\d", EOFError, "DROP VIEW x;")
    assert prompts == ["upstream=>", "upstream->", "upstream=>", "upstream=>"]
    assert complaints == []


@pytest.mark.parametrize(
    ("begun", "found"),
    [
        ("sel", ["select"]),
        ("SEL", ["SELECT"]),
        ("bu", ["buses"]),
        ("BU", ["buses"]),
        ("l", ["latest", "left", "limit", "lines"]),
        ("", []),
        ("zz", []),
    ],
)
def test_words_are_completed_in_the_case_in_which_they_are_begun(begun, found):
    assert completions(begun, ["buses", "lines"]) == found


def test_rows_go_and_come_each_as_often_as_it_does_in_order():
    assert changes(None, pl.DataFrame({"k": [2, 1]})) == [("+", (1,)), ("+", (2,))]
    before = pl.DataFrame({"k": [1, 1, 2, 3], "v": [None, None, 5.0, 7.0]})
    after = pl.DataFrame({"k": [1, 2, 3, 3], "v": [None, 6.0, 7.0, 7.0]})
    assert changes(before, after) == [
        ("-", (1, None)),
        ("-", (2, 5.0)),
        ("+", (2, 6.0)),
        ("+", (3, 7.0)),
    ]
    frame = pl.DataFrame({"v": [float("nan"), 1.0, None, float("inf")]})
    assert [str(row[0]) for _, row in changes(None, frame)] == ["None", "1.0", "inf", "nan"]


@pytest.mark.parametrize("value", [float("nan"), None, [1, 2], {"a": 1}, b"x"])
def test_what_stays_is_no_change_whatever_its_type(value):
    frame = pl.DataFrame({"v": pl.Series([value])})
    assert changes(frame, frame.clone()) == []
    assert len(changes(None, frame)) == 1


def test_a_long_result_is_cut_and_says_so():
    console = Console(width=40)
    with console.capture() as shown:
        console.print(grid(pl.DataFrame({"k": [3, 1, 2]}), 2))
    assert shown.get().split() == ["k", "1", "2", "2", "of", "3", "rows"]
    with console.capture() as shown:
        console.print(grid(pl.DataFrame({"k": [3, 1, 2]}), 3))
    assert "of" not in shown.get()


def test_a_table_is_read_when_it_has_a_new_version(tmp_path):
    location = str(tmp_path / "table")
    assert snapshot(location, -1) is None
    pl.DataFrame({"row_key": ["1"], "k": [1], "_upstream_bucket": [0]}).write_delta(location)
    found = snapshot(location, -1)
    assert found is not None
    version, rows = found
    assert (version, rows.rows()) == (0, [("1", 1)])
    assert snapshot(location, 0) is None
    pl.DataFrame({"row_key": ["2"], "k": [2], "_upstream_bucket": [0]}).write_delta(location, mode="append")
    found = snapshot(location, 0)
    assert found is not None
    assert sorted(found[1].rows()) == [("1", 1), ("2", 2)]
