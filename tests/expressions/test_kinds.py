import pyarrow as pa
import pytest
from kit.failures import unfit

from upstream.expressions import kinds


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
    unfit("TIME are not operands", kinds.standard, pa.time64("us"))
