from collections.abc import Callable

import pytest
from kit.continuous import CATALOG
from rich.console import Console

from upstream.api.queries import queries
from upstream.cli.sql_shell import Shell, completions, converse, statements_of
from upstream.hosting.registry.edits import define_stream

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
            converse(Shell(there, console, Idle()), line, lambda error: complaints.append(str(error)))
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


def test_the_last_statement_of_a_script_needs_no_semicolon():
    assert list(statements_of("SELECT 1;\n\\d\nSELECT 2\n")) == ["SELECT 1", "\\d", "SELECT 2"]
    assert list(statements_of(" \n")) == []


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
