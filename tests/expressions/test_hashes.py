from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from upstream.expressions import kinds

from .values import evaluate

_WIDE = pa.decimal128(38, 0)


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, None], kinds.INT, [-559580957, 42]),
        ([1], kinds.LONG, [-1712319331]),
        ([True], kinds.BOOLEAN, [-559580957]),
        (["abc", "é😀x1234"], kinds.TEXT, [1322437556, -843179916]),
        ([b"\xff\x80"], kinds.BINARY, [-577813652]),
        ([1.5, -0.0, 0.0, float("nan")], kinds.DOUBLE, [1290763749, -1670924195, -1670924195, -1281358385]),
        ([1.5, -0.0, float("nan")], kinds.FLOAT, [-221251528, 933211791, -349261430]),
        ([date(2020, 1, 1)], kinds.DATE, [-725858435]),
        ([datetime(2020, 1, 1, tzinfo=timezone.utc)], kinds.TIMESTAMP, [-1486022740]),
        ([timedelta(days=1)], kinds.DURATION, [892267096]),
        ([Decimal("1.5")], pa.decimal128(2, 1), [-18083236]),
        (
            [Decimal(f"{sign}99999999999999999999.5") for sign in ("", "-")],
            pa.decimal128(21, 1),
            [-573773193, 564454047],
        ),
        ([Decimal(each) for each in (0, 128, -128)], _WIDE, [-783713497, -544401882, 775851899]),
        ([Decimal(1)], pa.decimal128(19, 0), [-386724586]),
        ([None], kinds.NULL, [42]),
    ],
)
def test_hash_is_that_of_spark(values, dtype, expected):
    assert evaluate("hash", (values, dtype)) == expected


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1], kinds.INT, -6698625589789238999),
        ([1], kinds.LONG, -7001672635703045582),
        (["abc"], kinds.TEXT, 1423657621850124518),
        ([""], kinds.TEXT, -7444071767201028348),
        (["é😀x1234567890123456789012345678901234567890"], kinds.TEXT, -3133429325402736644),
        ([Decimal("1.5")], pa.decimal128(2, 1), 3132713209420183794),
        ([Decimal("99999999999999999999.5")], pa.decimal128(21, 1), 182801420894901686),
        ([-0.0], kinds.DOUBLE, -5252525462095825812),
    ],
)
def test_xxhash64_is_that_of_spark(values, dtype, expected):
    assert evaluate("xxhash64", (values, dtype)) == [expected]


def test_a_value_is_hashed_with_the_hash_of_those_before_it():
    assert evaluate("hash", ([1], kinds.BYTE), (["a"], kinds.TEXT)) == [-936062819]
    several = ([True], kinds.BOOLEAN), ([None], kinds.NULL), (["x"], kinds.TEXT)
    assert evaluate("xxhash64", *several) == [8510603489595372987]
