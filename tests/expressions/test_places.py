import pickle

from hypothesis import given
from hypothesis import strategies as st

from upstream.expressions.places import Text, near


def test_the_line_and_a_caret_below_it_whatever_its_end_and_length():
    error = Text("SELECT a,\n\tb\nFROM s").error((11, 11), "no b", expected="a", hint="write a")
    assert (error.line, error.column) == (2, 2)
    assert error.excerpt == "     b\n     ^"
    assert str(error) == "Line 2, column 2: no b. Expected: a. What to do: write a.\n     b\n     ^"
    assert Text("a\r\nb c\r\n").error((5, 5), "x").excerpt == "    b c \n      ^"
    long = "x" * 200 + "HERE" + "y" * 200
    shown, caret = Text(long).error((200, 203), "x").excerpt.split("\n")
    assert shown[caret.index("^") : caret.rindex("^") + 1] == "HERE"
    assert len(shown) < 130


@given(st.text(max_size=80), st.integers(-5, 100), st.integers(-5, 100))
def test_any_place_in_any_text_can_be_shown(sql, start, end):
    error = Text(sql).error((start, end), "x")
    assert error.line >= 1
    assert "^" in error.excerpt


def test_errors_survive_the_way_to_another_process():
    error = Text("SELECT", "v").error((0, 5), "no", hint="yes")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.line, again.column, again.excerpt) == (1, 1, error.excerpt)
    assert "in the view 'v'" in str(again)


def test_near_names():
    assert near("prise", ["price", "size"]) == "did you mean 'price'?"
    assert near("PRICE", ["price"]) == "did you mean 'price'?"
    assert near("zzz", ["b", "a"], all_of="the columns are") == "the columns are: a, b"
    assert near("zzz", ["b", "a"]) == ""
    assert near("zzz", [f"a{each:02}" for each in range(12)], all_of="there are").endswith("a09 and 2 more")
