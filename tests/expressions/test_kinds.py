import pyarrow as pa
import pytest
from kit.failures import unfit

from upstream.expressions import kinds


def test_digits_of_results_and_of_constants():
    assert kinds.adjusted_decimal(38, 38) == pa.decimal128(38, 38)
    assert kinds.adjusted_decimal(39, 38) == pa.decimal128(38, 37)
    assert kinds.adjusted_decimal(77, 36) == pa.decimal128(38, 6)
    assert kinds.adjusted_decimal(77, 4) == pa.decimal128(38, 4)
    assert kinds.wider_decimal([pa.decimal128(5, 2), pa.decimal128(10, 0)]) == pa.decimal128(12, 2)
    assert kinds.wider_decimal([pa.decimal128(38, 0), pa.decimal128(4, 3)]) == pa.decimal128(38, 0)
    assert [kinds.decimal_of_constant(value).precision for value in (0, 9, -10, 12345)] == [1, 1, 2, 5]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pa.uint32(), kinds.LONG),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.timestamp("s", "Asia/Tokyo"), kinds.TIMESTAMP),
        (pa.timestamp("ns"), kinds.LOCAL_TIMESTAMP),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.decimal256(20, 3), pa.decimal128(20, 3)),
    ],
)
def test_other_types_of_arrow_have_one_that_holds_their_values(given, expected):
    assert kinds.standard(given) == expected


def test_names_are_those_of_spark():
    names = [
        kinds.spark_name(each) for each in (kinds.LONG, pa.decimal128(9, 1), kinds.TIMESTAMP, pa.list_(pa.string()))
    ]
    assert names == ["BIGINT", "DECIMAL(9,1)", "TIMESTAMP", "ARRAY<STRING>"]
    assert kinds.spark_name(pa.struct([("a", pa.int8())])) == "STRUCT<a: TINYINT>"
    unfit("TIME are no operands", kinds.standard, pa.time64("us"))
