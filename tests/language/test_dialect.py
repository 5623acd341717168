"""The dialect reads and writes every form, and refuses what is no query with a place in the text."""

from collections import Counter
from contextlib import suppress

import pytest
import sqlglot
from hypothesis import example, given
from hypothesis import strategies as st
from kit.continuous import CATALOG, FORMS
from sqlglot.tokenizer_core import TokenType

from upstream.conf.errors import QueryRefusedError
from upstream.language import bind
from upstream.language.dialect import ContinuousSql, parse
from upstream.language.grammar import StreamOperator, StreamWindow


@pytest.mark.parametrize("sql", FORMS)
def test_each_form_is_written_as_it_was_read(sql):
    tree = parse(sql)
    written = tree.sql(ContinuousSql)
    assert parse(written) == tree
    assert parse(written).sql(ContinuousSql) == written
    assert bind(written, CATALOG).plan == bind(sql, CATALOG).plan


def test_sqlglot_takes_the_dialect_by_its_class_and_copies_windows():
    tree = sqlglot.parse_one("ISTREAM(SELECT a FROM s [PARTITION BY k ROWS 5])", read=ContinuousSql)
    assert isinstance(tree, StreamOperator)
    assert tree.find(StreamWindow).args["rows"].name == "5"
    assert tree.sql(ContinuousSql) == "ISTREAM(SELECT a FROM s [PARTITION BY k ROWS 5])"
    five, six = parse("SELECT a FROM s [ROWS 5]"), parse("SELECT a FROM s [ROWS 6]")
    assert five != six
    assert five.copy() == five
    assert "[ROWS 5]" in five.copy().sql(ContinuousSql)


@pytest.mark.parametrize("sql", ["SELECT 'a FROM s", "SELECT a FROM s /* x", "SELECT `a FROM s", "SELECT a FROM s \\"])
def test_text_without_an_end_or_nested_too_deeply_is_refused(sql):
    with pytest.raises(QueryRefusedError):
        parse(sql)
    with pytest.raises(QueryRefusedError, match="nested too deeply"):
        parse("SELECT " + "(" * 5000 + "1" + ")" * 5000 + " FROM s")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT {} AS x FROM trade [NOW]".format(" OR ".join(f"n = {n}" for n in range(3000))),
        "SELECT {} AS x FROM trade [NOW]".format(" AND ".join(f"n <> {n}" for n in range(3000))),
        "SELECT {} AS x FROM trade [NOW]".format("+".join(["n"] * 3000)),
        "SELECT {} AS x FROM trade [NOW]".format("||".join(["sym"] * 3000)),
        " UNION ALL ".join(["SELECT sym FROM trade [NOW]"] * 600),
        " EXCEPT ".join(["SELECT sym FROM trade [NOW]"] * 360),
    ],
    ids=["or", "and", "+", "||", "union", "except"],
)
def test_long_chains_are_not_deep(text):
    tree = parse(text)
    assert parse(tree.sql(ContinuousSql)) == tree
    bind(text, CATALOG)


def test_unions_of_other_kinds_are_not_one_chain():
    one = "SELECT sym FROM trade [NOW]"
    text = " UNION ".join([one] * 9) + f" UNION ALL {one} EXCEPT {one}"
    tree = parse(text)
    assert (tree.key, tree.this.key, tree.this.args["distinct"]) == ("except", "union", False)
    assert tree.this.this.args["distinct"] is True
    assert bind(tree.sql(ContinuousSql), CATALOG).plan == bind(text, CATALOG).plan


EXTRA = "[ ] , . * NULL WINDOW OFFSET :: UNION ' 1e400 ; LATERAL EMIT ALL || ? :x { @ -- PIVOT [NOW] 2 INTERVAL"


def _words(sql: str) -> list[str]:
    for bracket in "()[]":
        sql = sql.replace(bracket, f" {bracket} ")
    return sql.split()


WORDS = sorted({*EXTRA.split(), *(word for form in FORMS for word in _words(form))})


@st.composite
def mutations(draw: st.DrawFn) -> str:
    words = _words(draw(st.sampled_from(FORMS)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(words)))
        gone = draw(st.sampled_from([0, 0, 1, 1, 2, len(words)]))
        swapped = st.just(words[at : at + gone][::-1])
        words[at : at + gone] = draw(swapped | st.lists(st.sampled_from([*WORDS, *words]), max_size=2))
    return " ".join(words)


# What may be written or left out without another meaning.
NOISE = "AS ( ) INNER OUTER ASC ALL DISTINCT PRECEDING TABLE INTERVAL ; + RANGE UNBOUNDED LEFT DESCRIPTOR PERCENT"
NOISE += " NULLS FIRST LAST TABLESAMPLE SAMPLE FOR CAST"


def _bag(sql: str) -> tuple[Counter[str], Counter[str]]:
    """Count the words of a text, but for noise, and the characters of its values: 2 and '2' are one in an interval."""
    tokens = ContinuousSql().tokenize(sql)
    values = {TokenType.STRING, TokenType.NUMBER}
    texts = [each.text for each in tokens if each.token_type in values]
    words = [each.text.upper() for each in tokens if each.token_type not in values]
    plain = [each.removesuffix("S") for each in words if each not in NOISE.split()]
    return Counter(plain), Counter("".join(texts))


@example("SELECT '1' .")
@given(mutations())
def test_a_mutation_is_another_query_or_an_error_of_ours(sql):
    try:
        plan = bind(sql, CATALOG).plan
    except QueryRefusedError as refusal:
        shown = (refusal.line >= 1, "^" in refusal.excerpt)
    else:
        shown = None
    if shown is not None:
        assert shown == (True, True)
        return
    # Nothing of an accepted text is dropped: what is written from its tree has the same words, and the same plan.
    tree = parse(sql)
    written = tree.sql(ContinuousSql)
    assert bind(written, CATALOG).plan == plan
    assert _bag(written) == _bag(sql)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_read_or_refused(sql):
    with suppress(QueryRefusedError):
        assert bind(sql, CATALOG).reads
