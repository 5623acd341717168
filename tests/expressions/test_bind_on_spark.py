"""Texts of `select`, `where`, tested steps and conditions of joins have the types, values and errors of Spark."""

import math

import pyarrow as pa

from upstream.expressions.bind import OptionText, bind_value

from .beside_spark import Pair, compare, listed

TEXTS = """
CAST(d AS STRING); concat('is ', d, ' and ', f); d || f; CAST(d * 1e7 AS STRING); CAST(d AS INT);
CAST(s AS VARCHAR(2)); length(CAST(s AS CHAR(9)));
CAST(d AS DECIMAL(12, 3)); CAST(d AS TIMESTAMP); CAST(s AS INT); CAST(s AS DOUBLE); try_cast(s AS DOUBLE);
CAST(s AS BOOLEAN); CAST(s AS DATE); CAST(s AS TIMESTAMP); i * 1000000; i + n; 1 / i; n / 0; i % 3; -n; abs(n);
data.b::DOUBLE + 1; DATA.S; data['s']; data.d.x IS NULL; coalesce(data.b::DOUBLE, 0);
CASE WHEN i > 1 THEN data.b::DOUBLE ELSE 0 END; if(i = 0, 0, 1 / i); nullif(i, 0); timestamp_millis(n);
timestamp_seconds(d); upper(s); length(trim(s)); d > f; d <> 0.1; i IN (1, 2, NULL); i BETWEEN 1 AND 2 OR s LIKE '1%';
s = 1
"""
ROWS = [
    (0.1, 0.1, 1, 1, "1", ("a", "1.5", (2,))),
    (1e7, 1e7, 0, 0, " 2.5 ", ("b", "none", None)),
    (123456789.125, 3.0, -7, -(2**63), "2024-07-01", None),
    (math.nan, math.inf, 2**31 - 1, 2**63 - 1, "true", ("", None, (None,))),
    (-0.0, -1e-5, 2, 1_700_000_000_123, "soon", ("é", "-1e400", (7,))),
    (1e-3, None, None, None, None, ("c", "7", None)),
    (None, 16777217.0, 3, 86_400, "10:00", ("d", "NaN", None)),
]
DATA = pa.struct({"s": pa.string(), "b": pa.string(), "d": pa.struct({"x": pa.int32()})})
SCHEMA = pa.schema([
    *({"row": pa.int64(), "d": pa.float64(), "f": pa.float32(), "i": pa.int32(), "n": pa.int64()}).items(),
    *({"s": pa.string(), "data": DATA}).items(),
])  # fmt: skip


def test_texts_of_options_mean_what_they_mean_to_spark(interpreted):
    *plain, nested = zip(*ROWS, strict=True)
    data = [
        each and {"s": each[0], "b": each[1], "d": each[2] and {"x": each[2][0]}}  # a null struct stays null
        for each in nested
    ]
    table = pa.table([range(len(ROWS)), *plain, data], schema=SCHEMA)
    pairs = [Pair(sql, bind_value(OptionText(sql, "select"), SCHEMA)) for sql in listed(TEXTS)]
    values, failures = compare(interpreted, pairs, table, failures=20)
    assert values > 200
    assert failures > 10
