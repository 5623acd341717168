"""What names mean: a column's first, a field's else, with Spark's backticks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.column_names import Tree, listed, parts_of, path_name, quoted, resolved, spark_name, split_list

NAME = st.text(st.sampled_from("ab.,` ;"), min_size=1, max_size=5)
COLUMNS: Tree = {"a": {"b": {"c.d": None}, "B2": None}, "a.b": None, "x": None, "we`ird": {"b": None}}


@given(st.lists(NAME.filter(str.strip), min_size=1, max_size=4))
def test_parts_are_found_again(parts):
    assert parts_of(".".join(quoted(part) for part in parts)) == tuple(parts)


@given(st.lists(st.lists(NAME.filter(str.strip), min_size=1, max_size=3), min_size=1, max_size=4, unique_by=tuple))
def test_lists_are_read_back(paths):
    # A column's name may look like the name of a field; nothing but the columns there are tells the two from each
    # other.
    names = list(dict.fromkeys(path_name(path) for path in paths))
    columns = dict.fromkeys(names)
    assert [resolved(name, columns) for name in split_list(listed(names))] == [(name,) for name in names]


@given(
    st.dictionaries(NAME, st.none() | st.dictionaries(NAME, st.none(), min_size=1, max_size=3), min_size=1, max_size=4)
)
def test_each_column_and_field_has_a_name(columns):
    for name, fields in columns.items():
        assert resolved(name, columns) == (name,), "a column's name comes first, whatever is in it"
        for field in fields or ():
            full_name = path_name((name, field))
            assert full_name in columns or resolved(full_name, columns) == (name, field)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.b", ("a.b",)),
        ("A.B", ("a.b",)),
        ("`a`.b", ("a", "b")),
        ("a.b2", ("a", "B2")),
        ("a.b.`c.d`", ("a", "b", "c.d")),
        ("a.b.c.d", None),
        ("`a.b`", ("a.b",)),
        ("`a.B2`", None),
        ("we`ird.b", ("we`ird", "b")),
        ("`we``ird`.b", ("we`ird", "b")),
        ("x.b", None),
        ("nothing", None),
        ("`x", None),
        ("a..b", None),
    ],
)
def test_what_a_name_means(name, path):
    assert resolved(name, COLUMNS) == path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`a`.b, c", ("`a`.b", "c")),
        ("a.`b,c`,d", ("a.`b,c`", "d")),
        ("`a,b` , c", ("a,b", "c")),
        ("we`ird", ("we`ird",)),
        ("`a``b`", ("a`b",)),
        ("`a.b`", ("`a.b`",)),
    ],
)
def test_lists(text, names):
    assert split_list(text) == names


@pytest.mark.parametrize("text", ["`a`b", "a.`b", "`a`,`a`", "a, ", "``"])
def test_lists_that_are_none(text):
    with pytest.raises(ValueError):  # noqa: PT011 what is wrong differs
        split_list(text)


def test_names_for_spark():
    assert [spark_name(name, ["a.b", "c"]) for name in ("a.b", "`a`.`b`")] == ["`a.b`", "`a`.`b`"]
