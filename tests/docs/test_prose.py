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
