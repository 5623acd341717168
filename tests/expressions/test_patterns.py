import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.failures import unfit

from upstream.conf.errors import SchemaError
from upstream.expressions.kinds import INT, TEXT
from upstream.expressions.patterns import like_pattern, rust_pattern, rust_replacement

from .values import evaluate

_TEXTS = ["", "a", "ab", "a%b", "a_b", "a\\b", "axb", "line\nline", "日本", "a.b", "[a]"]


def _like(text: str, pattern: str) -> bool:
    """LIKE by its definition, one character after the other."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(_like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    wanted = pattern[1] if pattern[0] == "\\" else pattern[0]
    matches = bool(text) and (text[0] == wanted or (pattern[0] == "_"))
    return matches and _like(text[1:], pattern[2 if pattern[0] == "\\" else 1 :])


@given(
    texts=st.lists(st.sampled_from(_TEXTS) | st.text("ab%_\\.", max_size=6), min_size=1),
    parts=st.lists(st.sampled_from(["%", "_", "a", "b", ".", "[", "\\%", "\\_", "\\\\", "日", "\n"]), max_size=5),
)
def test_like(texts, parts):
    pattern = "".join(parts)
    found = evaluate("like", ([*texts, None], TEXT), constants=[([pattern], TEXT)])
    assert found == [*(_like(text, pattern) for text in texts), None]
    assert [bool(pl.Series([text]).str.contains(like_pattern(pattern)).item()) for text in texts] == found[:-1]


def test_like_with_another_escape_and_without_regard_to_case():
    column = ["a%b", "axb", "A%B", None], TEXT
    assert evaluate("like", column, constants=[(["a!%b"], TEXT), (["!"], TEXT)]) == [True, False, False, None]
    assert evaluate("ilike", column, constants=[(["A%b"], TEXT)]) == [True, True, True, None]
    for pattern in ("a\\", "a\\b"):
        unfit("escape character", evaluate, "like", column, constants=[([pattern], TEXT)])


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("^a.c", "abcd", "a\nc"),
        ("a.c", "a😀c", "a\u2028c"),
        ("\\d", "7", "٣"),
        ("\\w", "x", "é"),
        ("\\s", "\x0b", "\u00a0"),
        ("\\S\\D\\W", "a-.", " 1a"),
        ("c$", "abc\n", "c\n\n"),
        ("(a|b){2}", "ba", "ac"),
        ("[a-c_\\d]+x", "b_1x", "zx"),
        ("[^a-c]", "d", "abc"),
        ("a\\.b", "a.b", "axb"),
        ("x*?y", "y", "x"),
        ("[.$|]", "$", "x"),
        ("^[^&]+$", "a=b", "a&b"),
    ],
)
def test_regular_expressions(pattern, yes, no):
    assert evaluate("rlike", ([yes, no, None], TEXT), constants=[([pattern], TEXT)]) == [True, False, None]


_OTHERWISE = "(?i)a a(?=b) \\1 \\bа \\p{L} a*+ a{,2} a** [[a]b] [a&&b] [a- (a a) a$b"
_OTHERWISE += " *a \\ [z-a] [a-é] { [\\D] \\x41 (?<n>a) []"


@pytest.mark.parametrize("pattern", _OTHERWISE.split())
def test_what_java_and_rust_read_differently_is_refused(pattern):
    unfit("regular expression", rust_pattern, pattern)


@given(
    parts=st.lists(
        st.sampled_from(["a", "b", ".", "\\d", "[ab]", "(a|b)", "(?:ab)", "a*", "b+?", "a?", "^", "|"]), max_size=5
    ),
    text=st.text("ab1\n", max_size=6),
)
def test_simple_regular_expressions_are_pythons(parts, text):
    pattern = "".join(parts)
    try:
        made = rust_pattern(pattern)
    except SchemaError:
        return
    assert pl.Series([text]).str.contains(made).item() == bool(re.search(pattern, text))


def test_groups_are_extracted_and_named_in_replacements_as_java_does():
    column = ["a1b2", "", None, "xx"], TEXT
    pattern = (["([a-z])(\\d)?"], TEXT)
    assert evaluate("regexp_extract", column, constants=[pattern]) == ["a", "", None, "x"]
    assert evaluate("regexp_extract", column, constants=[pattern, ([2], INT)]) == ["1", "", None, ""]
    assert evaluate("regexp_extract", column, constants=[pattern, ([0], INT)]) == ["a1", "", None, "x"]
    for constants in ([pattern, ([3], INT)], [(["(a)+"], TEXT)]):
        unfit("group", evaluate, "regexp_extract", column, constants=constants)
    column = ["a1b2", None, ""], TEXT
    found = evaluate("regexp_replace", column, constants=[(["([a-z])(\\d)"], TEXT), (["$2$1-\\$0"], TEXT)])
    assert found == ["1a-$02b-$0", None, ""]
    assert rust_replacement("$12", 1) == "${1}2"
    assert rust_replacement("$12", 12) == "${12}"
    for replacement in ("$", "$x", "\\", "$3"):
        unfit("replacement", rust_replacement, replacement, 2)
    for pattern in ("x*", "a|", "b$"):
        unfit("may be empty", evaluate, "regexp_replace", column, constants=[([pattern], TEXT), (["-"], TEXT)])
