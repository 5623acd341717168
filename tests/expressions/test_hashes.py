import hashlib
import zlib
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.expressions import kinds
from upstream.expressions.kinds import BINARY, INT, TEXT

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


_LENGTHS = st.one_of(st.integers(0, 20), st.sampled_from([55, 56, 57, 63, 64, 65, 111, 112, 113, 127, 128, 129, 300]))
_BYTES = st.lists(
    st.none() | _LENGTHS.flatmap(lambda size: st.binary(min_size=size, max_size=size)), min_size=1, max_size=6
)


def _digests(standard: str, values: list[bytes | None]) -> list[str | None]:
    return [None if each is None else hashlib.new(standard, each).hexdigest() for each in values]


@given(_BYTES)
def test_digests_and_checksums_are_those_of_the_standards(values):
    for name, standard in (("md5", "md5"), ("sha1", "sha1"), ("sha", "sha1")):
        assert evaluate(name, (values, BINARY)) == _digests(standard, values)
    for bits in (0, 224, 256, 384, 512):
        found = evaluate("sha2", (values, BINARY), constants=[([bits], INT)])
        assert found == _digests(f"sha{bits or 256}", values)
    assert evaluate("crc32", (values, BINARY)) == [None if each is None else zlib.crc32(each) for each in values]


def test_text_is_taken_as_its_bytes_and_other_sizes_are_null():
    assert evaluate("md5", (["é", None], TEXT)) == [*_digests("md5", ["é".encode()]), None]
    assert evaluate("sha2", (["é"], TEXT), constants=[([7], INT)]) == [None]
