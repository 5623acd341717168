"""Hashes of values of each type, as Spark 4.2 has them."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from upstream.queries.expressions.kinds import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    INT,
    LONG,
    NULL,
    TEXT,
    TIMESTAMP,
)

from .values import evaluate

_WIDE = pa.decimal128(38, 0)


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, None], INT, [-559580957, 42]),
        ([1], LONG, [-1712319331]),
        ([True], BOOLEAN, [-559580957]),
        (["abc", "é😀x1234"], TEXT, [1322437556, -843179916]),
        ([b"\xff\x80"], BINARY, [-577813652]),
        ([1.5, -0.0, 0.0, float("nan")], DOUBLE, [1290763749, -1670924195, -1670924195, -1281358385]),
        ([1.5, -0.0, float("nan")], FLOAT, [-221251528, 933211791, -349261430]),
        ([date(2020, 1, 1)], DATE, [-725858435]),
        ([datetime(2020, 1, 1, tzinfo=timezone.utc)], TIMESTAMP, [-1486022740]),
        ([timedelta(days=1)], DURATION, [892267096]),
        ([Decimal("1.5")], pa.decimal128(2, 1), [-18083236]),
        (
            [Decimal(f"{sign}99999999999999999999.5") for sign in ("", "-")],
            pa.decimal128(21, 1),
            [-573773193, 564454047],
        ),
        ([Decimal(each) for each in (0, 128, -128)], _WIDE, [-783713497, -544401882, 775851899]),
        ([Decimal(1)], pa.decimal128(19, 0), [-386724586]),
        ([None], NULL, [42]),
    ],
)
def test_hash_is_that_of_spark(values: list[Any], dtype: pa.DataType, expected: list[int]) -> None:
    assert evaluate("hash", (values, dtype)) == expected


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1], INT, -6698625589789238999),
        ([1], LONG, -7001672635703045582),
        (["abc"], TEXT, 1423657621850124518),
        ([""], TEXT, -7444071767201028348),
        (["é😀x1234567890123456789012345678901234567890"], TEXT, -3133429325402736644),
        ([Decimal("1.5")], pa.decimal128(2, 1), 3132713209420183794),
        ([Decimal("99999999999999999999.5")], pa.decimal128(21, 1), 182801420894901686),
        ([-0.0], DOUBLE, -5252525462095825812),
    ],
)
def test_xxhash64_is_that_of_spark(values: list[Any], dtype: pa.DataType, expected: int) -> None:
    assert evaluate("xxhash64", (values, dtype)) == [expected]


def test_a_value_is_hashed_with_the_hash_of_those_before_it() -> None:
    assert evaluate("hash", ([1], BYTE), (["a"], TEXT)) == [-936062819]
    assert evaluate("xxhash64", ([True], BOOLEAN), ([None], NULL), (["x"], TEXT)) == [8510603489595372987]
