"""Spark SQL's types as Arrow's: names, kinds, and the precision of decimals."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..conf.errors import SchemaError

NULL = pa.null()
BOOLEAN = pa.bool_()
BYTE, SHORT, INT, LONG = pa.int8(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE = pa.float32(), pa.float64()
TEXT, BINARY = pa.string(), pa.binary()
DATE = pa.date32()
UTC = "UTC"
"""The time zone of expressions, unless a session has another one."""
TIMESTAMP = pa.timestamp("us", tz=UTC)
LOCAL_TIMESTAMP = pa.timestamp("us")
DURATION = pa.duration("us")
MONTHS = pa.month_day_nano_interval()
INTEGRALS: tuple[pa.DataType, ...] = (BYTE, SHORT, INT, LONG)
"""From the narrowest to the widest."""

MAX_PRECISION = 38
_LEAST_SCALE = 6
_DIGITS = {BYTE: 3, SHORT: 5, INT: 10, LONG: 20}
_NAMES = {
    NULL: "VOID",
    BOOLEAN: "BOOLEAN",
    BYTE: "TINYINT",
    SHORT: "SMALLINT",
    INT: "INT",
    LONG: "BIGINT",
    FLOAT: "FLOAT",
    DOUBLE: "DOUBLE",
    TEXT: "STRING",
    BINARY: "BINARY",
    DATE: "DATE",
    TIMESTAMP: "TIMESTAMP",
    LOCAL_TIMESTAMP: "TIMESTAMP_NTZ",
    DURATION: "INTERVAL DAY TO SECOND",
    MONTHS: "INTERVAL",
}
_WIDENED = {pa.uint8(): SHORT, pa.uint16(): INT, pa.uint32(): LONG, pa.uint64(): pa.decimal128(20, 0)} | {
    pa.float16(): FLOAT,
    pa.date64(): DATE,
    pa.large_string(): TEXT,
    pa.string_view(): TEXT,
    pa.large_binary(): BINARY,
    pa.binary_view(): BINARY,
}


def standard(dtype: pa.DataType) -> pa.DataType:
    """Return Spark's type that holds all values of an Arrow type; raise SchemaError if there is none."""
    if dtype in _NAMES or is_decimal(dtype):
        return dtype
    if dtype in _WIDENED:
        return _WIDENED[dtype]
    if pa.types.is_timestamp(dtype):
        return LOCAL_TIMESTAMP if dtype.tz is None else TIMESTAMP
    if pa.types.is_duration(dtype):
        return DURATION
    if pa.types.is_dictionary(dtype):
        return standard(dtype.value_type)
    if pa.types.is_decimal(dtype) and 0 <= dtype.scale <= dtype.precision <= MAX_PRECISION:
        return pa.decimal128(dtype.precision, dtype.scale)
    if pa.types.is_nested(dtype):
        return dtype
    raise SchemaError(
        f"values of type {spark_name(dtype)} are not operands of continuous SQL",
        expected="numbers, text, BOOLEAN, DATE, TIMESTAMP, or nested",
        hint="cast the column in the stream that the query reads, for example to STRING",
    )


def plain(dtype: pa.DataType) -> pa.DataType:
    """Return the type as Spark has it: no large offsets, times in microseconds."""
    if pa.types.is_large_string(dtype):
        return pa.string()
    if pa.types.is_large_binary(dtype):
        return pa.binary()
    if pa.types.is_large_list(dtype) or pa.types.is_list(dtype):
        return pa.list_(plain(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct(
            [pa.field(dtype.field(at).name, plain(dtype.field(at).type)) for at in range(dtype.num_fields)]
        )
    if pa.types.is_timestamp(dtype):
        return TIMESTAMP if dtype.tz is not None else pa.timestamp("us")
    if pa.types.is_null(dtype):
        return pa.string()
    return dtype


def has_map(dtype: pa.DataType) -> bool:
    """Return whether a type is a map, or has one at any depth."""
    return pa.types.is_map(dtype) or any(has_map(dtype.field(at).type) for at in range(dtype.num_fields))


def map_refused(name: str, dtype: pa.DataType) -> SchemaError:
    """Return the error for a column with a map: continuous SQL compares rows, and maps do not compare."""
    return SchemaError(
        f"the column {name!r} is of type {spark_name(dtype)}, which continuous SQL does not have",
        expected="numbers, text, BOOLEAN, BINARY, dates, times, ARRAY, or STRUCT",
        hint="leave it out; or store it as an ARRAY of STRUCT (map_entries in Spark), or as text (to_json)",
    )


def spark_name(dtype: pa.DataType) -> str:
    """Return the name of a type in Spark SQL."""
    if is_decimal(dtype):
        return f"DECIMAL({dtype.precision},{dtype.scale})"
    if pa.types.is_struct(dtype):
        return "STRUCT<" + ", ".join(f"{field.name}: {spark_name(field.type)}" for field in dtype) + ">"
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return f"ARRAY<{spark_name(dtype.value_type)}>"
    if pa.types.is_map(dtype):
        return f"MAP<{spark_name(dtype.key_type)}, {spark_name(dtype.item_type)}>"
    if pa.types.is_time64(dtype):
        return "TIME"
    return _NAMES.get(dtype, str(dtype))


def is_decimal(dtype: pa.DataType) -> bool:
    """Return whether the type is one of Spark's decimals."""
    return pa.types.is_decimal128(dtype) and 0 <= dtype.scale <= dtype.precision


def is_integral(dtype: pa.DataType) -> bool:
    """Return whether the type is of whole numbers: TINYINT, SMALLINT, INT, BIGINT."""
    return dtype in _DIGITS


def is_fractional(dtype: pa.DataType) -> bool:
    """Return whether the type is FLOAT, DOUBLE or a decimal."""
    return dtype in (FLOAT, DOUBLE) or is_decimal(dtype)


def is_number(dtype: pa.DataType) -> bool:
    """Return whether the type is of numbers."""
    return is_integral(dtype) or is_fractional(dtype)


def is_time(dtype: pa.DataType) -> bool:
    """Return whether the type is of dates or timestamps."""
    return dtype in (DATE, TIMESTAMP, LOCAL_TIMESTAMP)


def as_decimal(dtype: pa.DataType) -> pa.Decimal128Type:
    """Return the decimal type that holds all whole numbers of a type; a decimal type stays."""
    return pa.decimal128(_DIGITS[dtype], 0) if dtype in _DIGITS else dtype


def decimal_of_constant(value: int) -> pa.Decimal128Type:
    """Return the least decimal type that holds a whole number."""
    return pa.decimal128(len(str(abs(value))), 0)


def adjusted_decimal(precision: int, scale: int) -> pa.Decimal128Type:
    """Return the decimal type nearest to this precision and scale. Beyond 38 digits, the scale is cut first, to 6."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _LEAST_SCALE)))


def wider_decimal(types: Sequence[pa.DataType]) -> pa.Decimal128Type:
    """Return the decimal type that holds all given types; beyond 38 digits, those after the point are cut."""
    scale = max(each.scale for each in types)
    precision = max(each.precision - each.scale for each in types) + scale
    return pa.decimal128(min(precision, MAX_PRECISION), max(0, scale - max(0, precision - MAX_PRECISION)))
