"""The pages on continuous queries: what they show is what the parser, the planner, the registry and EXPLAIN do."""

import re
import shlex
from datetime import timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
import typer
from kit import golden, modules
from kit.continuous import BUSES, CATALOG, DOMAINS, EPOCH, MOMENT, QUOTE, REQUESTS, TRADE
from kit.evaluated import changes
from kit.hosting import Versions, frame
from kit.places import ROOT
from typer.testing import CliRunner

from upstream.cli.main import app
from upstream.expressions.compile import compiled
from upstream.expressions.nodes import Call, Expression, Field
from upstream.expressions.types import function_names
from upstream.hosting.edits import define_stream, opened, record
from upstream.hosting.host_plan import result_of
from upstream.hosting.journal import Change
from upstream.hosting.registry import registry_now
from upstream.hosting.shared_parts import explain_among
from upstream.language import Catalog, bind, statements
from upstream.language.catalog import function_of
from upstream.language.statements import Create, CreateSource, Describe, Select
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.aggregates import AGGREGATES, ORDERLESS
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.plan.nodes import Join, Node, Project, walk
from upstream.operators.relations.plan.nodes import Stream as StreamNode
from upstream.operators.relations.plan.properties import on_arrival
from upstream.operators.relations.zsets import BEGINNING
from upstream.operators.state.store import DictStore


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def blocks(of: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", of, re.DOTALL)


# --- the query language

LANGUAGE = page("query-language")
# With times in minutes.
ROWS = {
    TRADE: [("a", 1.0, 3, 1), ("a", 9.0, 4, 5), ("b", 2.0, 3, 7), ("a", 2.5, 1, 200)],
    QUOTE: [("a", 1.5, 1), ("a", 8.0, 4), ("b", 1.0, 6)],
    BUSES: [("x", "r1", 12.0, 1), ("y", "r1", 3.0, 2), ("x", "r2", 14.0, 30)],
    REQUESTS: [
        (1, "stanford.edu", "http://cs.stanford.edu/a", 1),
        (2, "shop.com", "http://shop.com/b", 2),
        (1, "stanford.edu", "http://ee.stanford.edu/", 3),
    ],
    DOMAINS: [("shop.com", "commerce"), ("stanford.edu", "study")],
}


@pytest.mark.parametrize("sql", blocks(LANGUAGE, "sql"))
def test_examples_are_evaluated(sql):
    names = bind(sql, CATALOG).schema.names
    found = changes(sql, ROWS, end=24 * 60, unit=timedelta(minutes=1))
    if "SAMPLE" not in sql:
        assert any(any(value is not None for value in row[: len(names)]) for row in found), "it has rows"
    assert all(len(row) == len(names) + 2 for row in found)
    golden.check("query language", " ".join(sql.split()), golden.digest(found))


def test_the_function_of_the_page_is_called(tmp_path, monkeypatch):
    (code,) = blocks(LANGUAGE, "python")
    (tmp_path / "jobs.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    (statement,) = re.findall(r"`(CREATE FUNCTION [^`]*)`", LANGUAGE)
    function_of(statement).check()
    score = function_of(statement).call([Field("speed", pa.float64())])
    found = compiled(score, BUSES.schema).evaluate(pl.DataFrame({"speed": [15.0, None]}))
    assert found.to_list() == [0.5, None]


@pytest.mark.parametrize("window", re.findall(r"^\| `((?:s |s\[|LATEST|TUMBLE|HOP)[^`]*)`", LANGUAGE, re.MULTILINE))
def test_windows_are_bound(window):
    stream = "buses" if window.startswith("LATEST") else "trade"
    source = re.sub(r"\bs\b", stream, window).replace("BY k", "BY sym").replace("WHERE p", "WHERE n > 1")
    assert bind(f"SELECT COUNT(*) FROM {source}", CATALOG).reads == (stream,)


# --- functions

FUNCTIONS = modules.tool("functions")
COLUMNS = {
    **dict.fromkeys("abc", pa.int64()),
    **dict.fromkeys("pq", pa.bool_()),
    "s": pa.string(),
    "l": pa.list_(pa.int32()),
    "r": pa.struct({"f": pa.int32()}),
    "t": MOMENT,
}
BECOMES = {"between": "and"}


def calls(expression: Expression) -> set[str]:
    if not isinstance(expression, Call):
        return set()
    return {expression.function}.union(*map(calls, expression.arguments))


@pytest.mark.parametrize("name", FUNCTIONS.OPERATORS)
def test_operators_are_the_functions_that_the_page_has_them_for(name):
    catalog = Catalog().with_stream(StreamNode("x", pa.schema(COLUMNS), event_time="t"))
    plan = bind(f"SELECT {FUNCTIONS.OPERATORS[name]} AS found FROM x", catalog).plan
    columns = [made for node in walk(plan) if isinstance(node, Project) for _, made in node.columns]
    assert BECOMES.get(name, name) in set[str]().union(*map(calls, columns))


def test_each_function_has_one_line():
    text = page("functions")
    rows = [line for line in text.splitlines() if line.startswith(("| `", "`"))]
    listed = re.findall(r"`(\w+)`", "\n".join(row.partition(" | ")[0] for row in rows))
    for name in {*function_names()} - {*FUNCTIONS.OPERATORS, "second_with_fraction"}:
        assert listed.count(name) == 1, name
    for name in AGGREGATES - {*ORDERLESS}:
        assert f"`{name}(" in text or f"`{name}` for" in text, name
    assert not any("|  |" in row or ("by its arguments |" in row and "a - b" not in row) for row in rows)


# --- sharing

SHARING = page("sharing")
HIGHEST, MEANS, ROUTES, MANY, SHORT, LONG, EVER, OFTEN = blocks(SHARING, "sql")
PAIRS = """
SELECT a.sym, a.px, b.bid
FROM trade [RANGE 1 HOUR] AS a JOIN quote [PARTITION BY sym ROWS 1] AS b ON a.sym = b.sym
"""
COUNTED = """
SELECT b.sym, COUNT(*) AS pairs
FROM quote [PARTITION BY sym ROWS 1] AS b JOIN trade [RANGE 1 HOUR] AS a ON b.sym = a.sym
GROUP BY b.sym
"""


def hosted(sql: str) -> Node:
    """The plan that a job evaluates for a query."""
    return shareable(result_of(bind(sql, CATALOG).plan).plan)


def operators(*queries: str) -> int:
    plans = [hosted(sql) for sql in queries]
    evaluation = Evaluation(DictStore(), clock="arrival" if all(map(on_arrival, plans)) else "event")
    for number, plan in enumerate(plans):
        evaluation.add(str(number), plan, collapse=True)
    return evaluation.operators


@pytest.mark.parametrize(
    "pair", [(HIGHEST, MEANS), (ROUTES, MANY), (SHORT, LONG)], ids=["filtered", "newest", "slices"]
)
def test_two_queries_run_as_many_operators_as_the_page_has(pair):
    before = SHARING[: SHARING.index(pair[0])]
    (together, run) = re.findall(r"have (\d+)\s+operators,\s+and\s+(\d+)\s+of\s+them\s+run", before)[-1]
    assert sum(map(operators, pair)) == int(together)
    assert operators(*pair) == int(run)


def joins(sql: str) -> set[Node]:
    return {each for each in walk(hosted(sql)) if isinstance(each, Join)}


def test_a_join_is_shared_if_its_sides_are_equal():
    (condition,) = re.findall(r"`(WHERE a\.px[^`]*)`", SHARING)
    above = PAIRS + condition
    assert joins(PAIRS) == joins(COUNTED) != set()
    assert joins(PAIRS).isdisjoint(joins(above))
    assert operators(PAIRS, above) < operators(PAIRS) + operators(above), "they share the windows"


def test_a_query_starts_with_the_groups_that_another_one_has_kept():
    evaluation = Evaluation(DictStore())
    evaluation.add("counts", hosted(EVER))
    until = int(EPOCH.timestamp() * 1_000_000) + 1
    rows = frame(TRADE, [("a", 1.0, 1, EPOCH)] * 11 + [("b", 1.0, 1, EPOCH)])
    evaluation.step({"trade": rows}, until)
    evaluation.add("often", hosted(OFTEN))
    assert evaluation.step({}, until).changes["often"].get_column("sym").to_list() == ["a"]
    assert evaluation.complete_from("often") == BEGINNING


def test_the_plan_is_the_one_that_explain_gives():
    registry = Versions({1: {"highest": (1, HIGHEST)}})(1)
    assert f"```text\n{explain_among(MEANS, registry)}\n```" in SHARING


# --- the how-to pages; their Python runs on Spark with other pages

HOW_TO, SQL_JOB = page("how-to/continuous-queries"), page("how-to/sql-job")
(SHELL,) = blocks(HOW_TO, "bash")


def lines(block: str) -> list[list[str]]:
    """The commands of a block."""
    return [shlex.split(line) for line in re.split(r"\n(?=upstream)", block)]


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = str(tmp_path / "lake_checkpoint")
    opened(made, str(tmp_path / "lake"), None)
    return made


def typed(words: list[str]) -> str:
    """What a command says."""
    program, *given = words
    assert program == "upstream"
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def parameters(words: list[str]) -> dict[str, object]:
    """What a command line says, as the command gets it."""
    program, command, *given = words
    assert program == "upstream"
    return typer.main.get_command(app).commands[command].make_context(command, given).params  # type: ignore[attr-defined]


def test_the_statements_of_the_shell_and_its_options_are_there():
    given = parameters(shlex.split(SHELL))
    source, query = statements.script(str(given["statements"]))
    assert isinstance(source, CreateSource)
    assert source.options == {"key": "vehicle_id", "event_time": "timestamp"}
    assert isinstance(query, Select)
    assert bind(query.text, CATALOG).schema.names == ["route_id", "n"]
    assert (given["to"], given["name"]) == ("lake", "routes")


def test_the_file_of_a_job_and_the_commands_for_it(checkpoint):
    define_stream(checkpoint, BUSES)
    (file,) = blocks(SQL_JOB, "sql")
    (tmp := Path("job.sql")).write_text(file, encoding="utf-8")
    run, apply, single = map(lines, blocks(SQL_JOB, "bash"))
    assert parameters(*run)["file"] == tmp.name
    record(checkpoint, Change("statement", "buses", "CREATE SOURCE buses FROM 'old/' WITH (key = 'vehicle_id')"))
    shown, made = (typed(words).splitlines() for words in apply)
    assert shown[-1] == "To make this change, add --yes."
    assert made == shown[:-1]
    assert [each.partition(":")[0] for each in made] == [
        "~ alter source buses",
        "+ create view moving",
        "+ create materialized view fleet",
    ]

    del single[1]  # it shows a table, which the job has not written yet
    status, created = map(typed, single[:2])
    assert "fleet" in status
    assert created.startswith("CREATE MATERIALIZED VIEW fleet")
    found = []
    for words in single[2:4]:
        typed(words)
        fleet = registry_now(checkpoint).queries["fleet"]
        found.append((fleet.weight, fleet.active))
    assert found == [(3.0, True), (3.0, False)]
    (drop,) = single[4:]
    typed(drop)
    assert registry_now(checkpoint).queries == {}, "the view was dropped with what reads it"


def test_what_the_prompt_takes():
    (prompt,) = (each for each in blocks(HOW_TO, "text") if "upstream=>" in each)
    found, rest = statements.split("\n".join(line.partition("> ")[2] for line in prompt.splitlines()) + "\n")
    assert rest == ""
    create, select, describe = map(statements.parse, found)
    assert isinstance(create, Create)
    assert create.weight == 2
    assert isinstance(select, Select)
    for each in (create, select):
        assert bind(each.text, CATALOG).schema.names
    assert describe == Describe()
