"""Rules for prose: what each finds, and that the pages keep them."""

from types import ModuleType

import pytest
from kit import modules
from kit.places import ROOT

PAGES = [
    *(ROOT / folder / "README.md" for folder in (".", "benchmarks", "tests")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]


PROGRAMS = {"benchmarks", "examples", "tools"}
"""Of these the help alone."""
ROOMS = sorted({path.parent.name for path in ROOT.glob("[a-z]*/*.py")} - {"tests", "docs"})

CODE = '''
"""Rows that somebody reads."""
size = option("size", whole(), 1, "The size of a row.")
def read(path):
    """Whether a file tells its format.

    Raises
    ------
    OptionError
        The table is not told.

    Examples
    --------
    >>> read("anew")
    """
    raise OptionError(f"{path!r} is no table", expected="a table that is there" if path else "it anew", hint=LONG)
Option(help="Read this.")
print(f"{path} is made anew")
'''


@pytest.fixture(scope="module")
def prose():
    return modules.tool("prose")


def found(prose: ModuleType, markdown: str) -> list[tuple[int, str]]:
    return [(each.line, each.rule) for each in prose.check(markdown, prose.rules())]


def test_a_sentence_of_thirty_words_passes_and_one_more_does_not(prose):
    words = " ".join(["word"] * 29)
    assert found(prose, f"# T\n\nA {words}.\n") == []
    assert found(prose, f"# T\n\nA {words} more.\n") == [(3, "SentenceLength")]
    assert found(prose, f"A {words}. A {words}.") == [], "each sentence by itself"
    assert found(prose, f"A {words}; A {words}: A {words}. `Code` {words}.") == []


def test_code_is_not_prose(prose):
    assert found(prose, "```\nthe table tells anew\n```\n\nRun `the table tells anew`.") == []


def test_terms_and_actors_are_found_in_paragraphs_lists_and_tables(prose):
    assert found(prose, "Rows are written anew.\n\n- The table tells.\n\n| a |\n|---|\n| looks after |\n") == [
        (1, "Terms"),
        (3, "Actors"),
        (7, "Terms"),
    ]
    assert found(prose, "You know the table.") == []


def test_the_message_names_what_to_say(prose):
    (finding,) = prose.check("It is made anew.", prose.rules())
    assert finding.message == "Say 'again' instead of 'anew'."


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_pages_keep_the_rules(prose, page):
    broken = prose.check(page.read_text(encoding="utf-8"), prose.rules())
    assert [f"{each.line}: {each.message}" for each in broken] == []


def test_the_words_in_code_are_found(prose):
    code = CODE.replace("LONG", repr("see " * 26))
    broken = {(each.line, each.rule) for each in prose.check_words(code, prose.rules(), prints=True)}
    assert broken == {
        (2, "docstring: Terms"),
        (3, "option: Imperative"),
        (5, "docstring: Actors"),
        (5, "docstring: Idioms"),
        (5, "docstring: Imperative"),
        (16, "error: Idioms"),
        (16, "error: Terms"),
        (16, "error: SentenceLength"),
        (18, "output: Terms"),
    }


@pytest.mark.parametrize("room", ROOMS)
def test_the_words_in_code_keep_the_rules(prose, room):
    broken = [
        f"{path.relative_to(ROOT)}:{each.line}: {each.rule}: {each.message}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for each in prose.check_words(path.read_text(encoding="utf-8"), prose.rules(), prints=room == "cli")
        if room not in PROGRAMS or each.rule.startswith("help")
    ]
    assert broken == []
