import polars as pl
import pyarrow as pa

from upstream.operators.relations.operator import Evaluable, needed, with_columns

FRAME = pl.DataFrame({"a": [1, 2], "b": [3, 4]})


def test_values_have_the_expressions_type_and_one_for_each_row():
    constant = Evaluable(lambda _: pl.Series([7]), frozenset(), pa.int32())
    assert constant.series(FRAME, "x").to_list() == [7, 7]
    assert constant.series(FRAME, "x").dtype == pl.Int32
    assert constant.series(FRAME.clear(), "x").dtype == pl.Int32
    assert with_columns(FRAME, [("x", constant)]).columns == ["a", "b", "x"]


def test_the_columns_that_are_read():
    one, two = (Evaluable(lambda frame: frame["a"], frozenset(names), pa.int64()) for names in ("b", "ab"))
    assert needed(FRAME, one) == ["b"]
    assert needed(FRAME, one, two) == ["a", "b"]
    assert needed(FRAME) == []
