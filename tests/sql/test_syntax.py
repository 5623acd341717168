import pytest
from kit.continuous import refused

from upstream.sql.dialect import parse
from upstream.sql.syntax import NOT_ALIASES, NOT_NAMES


@pytest.mark.parametrize("word", sorted(NOT_NAMES))
def test_words_of_the_grammar_need_backquotes_as_names(word):
    refused(f"SELECT px AS {word} FROM trade [NOW]")
    assert parse(f"SELECT `{word}` FROM s").expressions[0].name == word


@pytest.mark.parametrize("word", sorted(NOT_ALIASES - NOT_NAMES))
def test_words_that_begin_a_clause_are_aliases_only_after_as(word):
    assert parse(f"SELECT {word} FROM s").expressions[0].name == word
    assert parse(f"SELECT px FROM s AS {word}").args["from_"].this.alias == word
    refused(f"SELECT px {word} FROM trade [NOW]")
