import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.failures import fails, unfit

from upstream.expressions import columnar
from upstream.expressions.kinds import INT, TEXT
from upstream.expressions.nodes import Constant, Field
from upstream.expressions.types import call

from .values import evaluate, fields, run

_TEXTS = st.lists(
    st.none() | st.sampled_from(["", "a", "é😀x", "日本語", "a,b,,c"]) | st.text(max_size=8), min_size=1, max_size=5
)
_PLACES = st.integers(-10, 10) | st.sampled_from([2**31 - 1, -(2**31)])


def _substring(text: str, start: int, length: int) -> str:
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(first, 0) : max(first + length, 0)]


@given(texts=_TEXTS, start=_PLACES, length=_PLACES)
@example(texts=["abcdef", "é😀x"], start=-3, length=2)
@example(texts=["abcdef"], start=-8, length=3)
@example(texts=["abcdef"], start=3, length=2**31 - 1)
def test_substring_counts_from_one_or_from_the_end(texts, start, length):
    columns = (texts, TEXT), ([start] * len(texts), INT), ([length] * len(texts), INT)
    expected = [None if text is None else _substring(text, start, length) for text in texts]
    assert evaluate("substring", *columns) == expected
    assert evaluate("substring", columns[0], constants=[([start], INT), ([length], INT)]) == expected
    rest = [None if text is None else _substring(text, start, 2**40) for text in texts]
    assert evaluate("substring", *columns[:2]) == rest


@given(texts=_TEXTS, count=st.integers(-3, 12))
def test_ends_padding_and_repetition(texts, count):
    column, number = (texts, TEXT), [([count], INT)]

    def expected(function: object) -> list[str | None]:
        return [None if text is None else function(text) for text in texts]  # type: ignore[operator]

    size = max(count, 0)
    assert evaluate("left", column, constants=number) == expected(lambda text: text[:size])
    assert evaluate("right", column, constants=number) == expected(lambda text: text[-size:] if size else "")
    assert evaluate("repeat", column, constants=number) == expected(lambda text: text * size)
    pad = [*number, (["xyz"], TEXT)]
    fill = "xyz" * 5
    padded = expected(lambda text: fill[: max(size - len(text), 0)] + text[:size])
    assert evaluate("lpad", column, constants=pad) == padded
    assert evaluate("rpad", column, constants=pad) == expected(lambda text: (text + fill)[:size])
    assert evaluate("length", column) == [None if text is None else len(text) for text in texts]
    assert evaluate("octet_length", column) == [None if text is None else len(text.encode()) for text in texts]


@given(texts=_TEXTS, part=st.sampled_from(["", "a", ",", "😀", "本"]))
def test_places_of_a_part(texts, part):
    column, constants = (texts, TEXT), [([part], TEXT)]
    places = [None if text is None else text.find(part) + 1 for text in texts]
    assert evaluate("instr", column, constants=constants) == places
    for function, method in (("contains", "__contains__"), ("startswith", "startswith"), ("endswith", "endswith")):
        expected = [None if text is None else getattr(text, method)(part) for text in texts]
        assert evaluate(function, column, constants=constants) == expected
        assert evaluate(function, column, ([part] * len(texts), TEXT)) == expected


def test_parts_between_delimiters():
    texts = ["a,b,,c", "", None, "x"]
    nothing = ["", "", None, ""]
    for number, expected in ((1, ["a", "", None, "x"]), (3, nothing), (-1, ["c", "", None, "x"]), (9, nothing)):
        assert evaluate("split_part", (texts, TEXT), constants=[([","], TEXT), ([number], INT)]) == expected
    assert evaluate("split_part", (texts, TEXT), constants=[([""], TEXT), ([1], INT)]) == texts
    fails("part 0", evaluate, "split_part", (texts, TEXT), constants=[([","], TEXT), ([0], INT)])
    assert evaluate("split_part", ([None], TEXT), constants=[([","], TEXT), ([0], INT)]) == [None]
    given, frame, schema = fields((["b", "X", "", None, "z"], TEXT))
    assert run(call("instr", [Constant("aXb", TEXT), given[0]]), frame, schema) == [3, 2, 1, None, 0]


def test_blanks_and_other_characters_at_the_ends():
    """The characters come before the text in trim, and after it in btrim."""
    texts = ["  a \t", "xaxbx", None, ""]
    assert evaluate("trim", (texts, TEXT)) == ["a \t", "xaxbx", None, ""]
    assert evaluate("ltrim", (texts, TEXT)) == ["a \t", "xaxbx", None, ""]
    assert evaluate("rtrim", (["  a  ", None], TEXT)) == ["  a", None]
    assert evaluate("btrim", (texts, TEXT), constants=[(["x b"], TEXT)]) == ["a \t", "a", None, ""]
    assert evaluate("btrim", (texts, TEXT), constants=[([""], TEXT)]) == texts
    for name, expected in (("trim", "bc"), ("ltrim", "bca"), ("rtrim", "abc")):
        given_, frame, schema = fields((["abca", None], TEXT))
        assert run(call(name, [Constant("a", TEXT), given_[0]]), frame, schema) == [expected, None]


def test_replacement_is_literal():
    texts = ["aXbX", "", None, "$1"]
    assert evaluate("replace", (texts, TEXT), constants=[(["X"], TEXT), (["$1"], TEXT)]) == ["a$1b$1", "", None, "$1"]
    assert evaluate("replace", (texts, TEXT), constants=[(["X"], TEXT)]) == ["ab", "", None, "$1"]
    assert evaluate("replace", (texts, TEXT), constants=[([""], TEXT), (["y"], TEXT)]) == texts


def test_concatenation_with_and_without_nulls():
    columns = (["a", None, "é"], TEXT), ([1, 2, None], INT)
    assert evaluate("concat", *columns) == ["a1", None, None]
    given, frame, schema = fields(*columns)
    dash = Constant("-", TEXT)
    separated = call("concat_ws", [call("concat", [dash, dash]), *given])
    assert run(separated, frame, schema) == ["a--1", "2", "é"]


def test_upper_and_lower_of_special_letters():
    assert evaluate("upper", (["straße", "ŉ", None, "é"], TEXT)) == ["STRASSE", "ʼN", None, "É"]
    assert evaluate("lower", (["ΑΣ", "ΑΣΑ", "İ", "É"], TEXT)) == ["ας", "ασα", "i̇", "é"]
    given, frame, schema = fields((["ß", None], TEXT))
    for inner, outer, expected in (("upper", "lower", "ß"), ("ucase", "lcase", "ß"), ("lower", "upper", "SS")):
        assert run(call(outer, [call(inner, given)]), frame, schema) == [expected, None]


def test_what_has_to_be_a_constant_is_asked_for():
    given, frame, schema = fields((["a"], TEXT), (["b"], TEXT))
    for function, arguments in (("replace", given), ("split_part", [*given, Field("n", INT)]), ("trim", given)):
        unfit("Expected: a constant", run, call(function, arguments), frame, pa.schema([*schema, ("n", INT)]))
    unfit("differs by row", evaluate, "translate", (["a"], TEXT), (["a"], TEXT), (["b"], TEXT))
    assert evaluate("translate", (["a"], TEXT), constants=[([None], TEXT), (["b"], TEXT)]) == [None]


@given(texts=_TEXTS)
def test_reverse_goes_by_code_points(texts):
    assert evaluate("reverse", (texts, TEXT)) == [None if text is None else text[::-1] for text in texts]
    assert evaluate("reverse", (["e\u0301x", "\r\n"], TEXT)) == ["x\u0301e", "\n\r"]
    assert evaluate("reverse", ([[1, None, 2], [], None], pa.list_(INT))) == [[2, None, 1], [], None]


@given(words=st.lists(st.text(st.characters(max_codepoint=0x24F), max_size=5), max_size=4))
def test_initcap_takes_words_between_spaces(words):
    words = [word.replace(" ", "_") for word in words]
    expected = " ".join(word[:1].title() + (word.lower()[len(word[:1].lower()) :]) for word in words)
    assert evaluate("initcap", ([" ".join(words), None], TEXT)) == [expected, None]
    several = evaluate("initcap", (["ǆx ﬁx ßa x'y  Z-A", ""], TEXT))
    assert several == ["ǅx Fix Ssa X'y  Z-a", ""], "letters that are several"


@given(texts=_TEXTS, letters=st.text("aé日,x", max_size=5), by=st.text("bé😀", max_size=4))
@example(texts=["aab"], letters="aba", by="123")
def test_translate_replaces_letter_by_letter_and_drops_what_has_none(texts, letters, by):
    table: dict[str, str] = {}
    for at, letter in enumerate(letters):
        table.setdefault(letter, by[at : at + 1])
    expected = [None if text is None else "".join(table.get(each, each) for each in text) for text in texts]
    assert evaluate("translate", (texts, TEXT), constants=[([letters], TEXT), ([by], TEXT)]) == expected


def test_a_text_that_would_be_too_long_is_not_made():
    for function, more in (("repeat", ([2_000_000_000], INT)), ("repeat", ([1 << 20], INT))):
        fails("more than 1048576 bytes", evaluate, function, (["ab"], TEXT), more)
    assert evaluate("repeat", (["ab", None, ""], TEXT), ([2, 2_000_000_000, 2_000_000_000], INT)) == ["abab", None, ""]
    fails(
        "more than 1048576 bytes",
        evaluate,
        "replace",
        (["a" * 1024], TEXT),
        constants=[(["a"], TEXT), (["b" * 1025], TEXT)],
    )


def test_locate():
    parts = [*["b"] * 5, "", "", "x", "b", None, None]
    texts = [*["abcb"] * 7, "é😀x", None, "a", None]
    starts = [1, 3, 5, 0, -1, 2, 9, 2, 1, 1, None]
    assert evaluate("locate", (parts, TEXT), (texts, TEXT), (starts, INT)) == [2, 4, 0, 0, 0, 1, 1, 3, None, None, 0]
    items = ["b", "", "a,b", "z", None, "a", "é"], TEXT
    assert evaluate("find_in_set", items, constants=[(["a,b,,é"], TEXT)]) == [2, 3, 0, 0, None, 1, 4]
    assert evaluate("find_in_set", (["a"], TEXT), ([None], TEXT)) == [None]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "a"), (2, "a.b"), (9, "a.b.c"), (0, ""), (-1, "c"), (-2, "b.c"), (-9, "a.b.c"), (None, None)],
)
def test_substring_index(count, expected):
    given = ["a.b.c"], TEXT
    assert evaluate("substring_index", given, constants=[(["."], TEXT), ([count], INT)]) == [expected]
    assert evaluate("substring_index", given, constants=[([""], TEXT), ([count], INT)]) == [
        None if count is None else ""
    ]
    unfit("overlap", evaluate, "substring_index", given, constants=[(["aa"], TEXT), ([count], INT)])


def test_overlay():
    for place, expected in ((3, "abXYef"), (0, "XYbcdef"), (-2, "XYabcdef")):
        assert evaluate("overlay", (["abcdef"], TEXT), constants=[(["XY"], TEXT), ([place], INT)]) == [expected]
    for place, length, expected in ((3, 0, "abXYcdef"), (-2, 1, "XYf"), (10, 1, "abcdefXY"), (3, -1, "abXYef")):
        constants = [(["XY"], TEXT), ([place], INT), ([length], INT)]
        assert evaluate("overlay", (["abcdef"], TEXT), constants=constants) == [expected]


@pytest.mark.parametrize(
    "function",
    [
        lambda text: call("concat", [text, text]),
        lambda text: call("concat_ws", [Constant(",", TEXT), text, text]),
        lambda text: call("rpad", [text, Constant(1_048_576, INT), Constant("é", TEXT)]),
        lambda text: call("regexp_replace", [text, Constant(".", TEXT), Constant("ab", TEXT)]),
        lambda text: call("overlay", [text, text, Constant(1, INT)]),
        lambda text: call("array_join", [call("array", [text, text]), Constant("", TEXT)]),
        lambda text: call("hex", [text]),
        lambda text: call("base64", [call("concat", [text, Constant("x" * 100_000, TEXT)])]),
    ],
)
def test_functions_that_join_texts_make_none_that_is_too_long(function):
    (text,), rows, schema = fields((["x" * 700_000], TEXT))
    fails("more than 1048576 bytes", run, function(text), rows, schema)


def test_texts_of_all_rows_and_functions_have_a_size_together(monkeypatch):
    monkeypatch.setattr(columnar, "MOST_BYTES_OF_ALL", 1_000)
    (text,), rows, schema = fields((["x"] * 10, TEXT))
    repeated = [call("repeat", [text, Constant(count, INT)]) for count in (40, 50, 60)]
    assert run(call("length", repeated[:1]), rows, schema) == [40] * 10
    assert run(call("add", [call("length", [each]) for each in repeated[:2]]), rows, schema) == [90] * 10
    sizes = call("add", [call("length", [repeated[0]]), call("length", [repeated[2]])])
    assert run(sizes, rows, schema) == [100] * 10
    fails("the texts of all rows", run, call("add", [sizes, call("length", [repeated[1]])]), rows, schema)
