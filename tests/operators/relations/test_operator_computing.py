import polars as pl
import pyarrow as pa

from upstream.expressions.nodes import Field
from upstream.operators.relations.operator import computed


def test_an_expression_is_evaluated_over_the_columns_that_it_names():
    found = computed(Field("v", pa.int64()), pa.schema({"v": pa.int64()}))
    assert found.columns == frozenset({"v"})
    assert found.series(pl.DataFrame({"v": [4]}), "x").to_list() == [4]
