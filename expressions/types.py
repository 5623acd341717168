"""Well-typed calls with the result types and implicit casts of Spark 4's ANSI mode."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence

import pyarrow as pa

from ..conf.errors import SchemaError
from .arithmetic_types import ARITHMETIC
from .coercion import Rule, Signature, cast, common, implicit, misfit, standardized, with_common_type
from .doubles import DOUBLE_RULES
from .encodings import ENCODING_RULES, on_bytes
from .formats import FORMAT_RULES, parsed
from .hashes import DIGEST_RULES, HASH_RULES
from .intervals import INTERVAL_RULES, part_of
from .kinds import (
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
    SHORT,
    TEXT,
    TIMESTAMP,
    is_integral,
    is_number,
    spark_name,
    standard,
)
from .logic import SEQUENCE_RULES
from .nodes import Call, Constant, Expression, chain
from .numbers import BIT_RULES
from .text import POSITION_RULES
from .times import MONTH_RULES

_MOMENT = "a query's answer depends on its rows alone; compare with the event time"
_CHANCE = "a query's answer depends on its rows alone; SAMPLE takes a share of the rows"
_NESTED = "read the values from columns of their own: prepare them in the DataFrame before the stream is registered"
_TEXT = "write it as a column of the DataFrame before the stream is registered"

_GROUPS: Mapping[str, tuple[str, ...]] = {
    _MOMENT: ("current_date", "current_timestamp", "now", "curdate", "localtimestamp", "current_time", "proctime"),
    _CHANCE: ("rand", "random", "randn", "uniform", "randstr", "shuffle"),
    "a query's answer depends on its rows alone": ("uuid", "current_user", "version", "input_file_name"),
    _NESTED: (
        *("aggregate", "array_append", "array_distinct", "array_except", "array_intersect", "array_sort"),
        *("array_union", "arrays_overlap", "arrays_zip", "exists", "filter", "flatten", "forall", "map"),
        *("map_concat", "map_filter", "map_from_arrays", "map_keys", "map_values"),
        *("reduce", "slice", "sort_array", "split", "str_to_map", "transform", "zip_with"),
        *("from_csv", "from_json", "from_xml", "get_json_object", "json_array_length", "json_tuple", "parse_json"),
        *("parse_url", "schema_of_json", "to_csv", "to_json", "to_xml", "variant_get", "xpath"),
    ),
    _TEXT: (
        *("aes_decrypt", "aes_encrypt", "conv", "format_number", "format_string", "levenshtein", "luhn_check", "mask"),
        *("printf", "regexp_extract_all", "sentences", "soundex", "to_char", "to_number", "url_decode", "url_encode"),
    ),
    "write it in FROM: s LATERAL VIEW EXPLODE(xs) t AS x": (
        *("explode", "explode_outer", "posexplode", "posexplode_outer", "unnest"),
    ),
    "use CASE n WHEN 1 THEN … WHEN 2 THEN … END": ("elt",),
    "add INTERVAL '1' DAY, or use timestampadd with a unit": ("make_interval",),
    "use regexp_extract or rlike": ("regexp_instr", "regexp_count", "regexp_substr"),
    "use split_part(s, d, n + 1), which counts from 1": ("split_index",),
    "leave such rows out with WHERE": ("assert_true", "raise_error"),
    "move the time by an interval: times are in UTC": ("convert_timezone", "from_utc_timestamp", "to_utc_timestamp"),
    "use TUMBLE or HOP in FROM": ("window",),
    "use SESSION(s PARTITION BY k, t, gap) in FROM": ("session", "session_start", "session_end", "session_window"),
    "use listagg(x, ', ')": ("group_concat",),
    "it looks at other rows: aggregate in a query, behind the source or the step": (
        *("any", "any_value", "approx_count_distinct", "array_agg", "avg", "bit_and", "bit_or", "bit_xor", "bool_and"),
        *("approx_percentile", "bool_or", "collect_list", "collect_set", "corr", "count", "count_if", "every", "first"),
        *("first_value", "listagg", "mode", "percentile_approx", "percentile_cont", "percentile_disc", "string_agg"),
        *("last", "last_value", "max", "max_by", "mean", "median", "min", "min_by", "percentile", "some", "std"),
        *("stddev", "stddev_pop", "stddev_samp", "sum", "var_pop", "var_samp", "variance"),
    ),
}
_HINTS = {name: hint for hint, names in _GROUPS.items() for name in names}


def hint_for(function: str) -> str:
    """Return the alternative to a function of Spark that is not evaluated here; empty if there is none."""
    return _HINTS.get(function, "")


def call(function: str, arguments: Sequence[Expression]) -> Expression:
    """Return a function's call with its result type and Spark's implicit casts of the arguments.

    `function` is the canonical name, as in ``Call``. Shorthands are expanded: ``between`` becomes two comparisons, and
    ``nullif`` a ``case``. Raises SchemaError if there is no such function here, or it does not take these arguments.
    """
    rule = _rules().get(function)
    if rule is None:
        near = difflib.get_close_matches(function, _rules(), 3)
        raise SchemaError(
            f"there is no function {function} here",
            expected=f"one of the functions of SQL that are evaluated here, such as {', '.join(near)}" if near else "",
            hint=hint_for(function),
        )
    return rule(function, [standardized(each) for each in arguments])


def in_list(value: Expression, values: Sequence[int] | Sequence[str]) -> Expression | None:
    """Return membership in a long list of constants; None unless the value and the constants are of one kind."""
    texts = isinstance(values[0], str)
    dtype = standard(value.type)
    if texts != (dtype == TEXT) or not (texts or is_integral(dtype)):
        return None
    listed = sorted(set(values))
    if not texts and max(int(listed[-1]), -1 - int(listed[0])) >= 2 ** (dtype.bit_width - 1):
        dtype = LONG
    return Call("in_list", (cast(value, dtype), Constant(tuple(listed), pa.list_(dtype))), BOOLEAN)


def function_names() -> tuple[str, ...]:
    """Return the names of all functions in alphabetical order."""
    return tuple(sorted(_rules()))


def _simple(result: pa.DataType, *takes: pa.DataType, optional: int = 0, name: str = "") -> Rule:
    return Signature(result, takes, optional, name)


def _comparison(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 2:
        raise misfit(function, arguments, "two values")
    name = "eq_null_safe" if function == "equal_null" else function
    if any(pa.types.is_struct(each.type) for each in arguments):
        return Call(name, _alike_rows(function, arguments), BOOLEAN)
    values = with_common_type(arguments)
    if values[0].type == NULL:
        values = tuple(cast(each, BOOLEAN) for each in values)
    if pa.types.is_nested(values[0].type):
        raise misfit(function, arguments, "values that are not arrays, maps or structs")
    return Call(name, values, BOOLEAN)


def _alike_rows(function: str, arguments: Sequence[Expression]) -> tuple[Expression, ...]:
    """Return two structs whose fields, in their order, are of the same types."""
    one, two = (
        Constant(None, arguments[1 - at].type) if each.type == NULL else each for at, each in enumerate(arguments)
    )
    if not (pa.types.is_struct(one.type) and one.type.num_fields == getattr(two.type, "num_fields", 0)):
        raise misfit(function, arguments, "two structs of as many fields")
    pairs = [(_field_at(one, at), _field_at(two, at)) for at in range(one.type.num_fields)]
    made = [
        _alike_rows(function, pair) if any(pa.types.is_struct(each.type) for each in pair) else with_common_type(pair)
        for pair in pairs
    ]
    if any(pa.types.is_nested(each.type) and not pa.types.is_struct(each.type) for each, _ in made):
        raise misfit(function, arguments, "structs without arrays and maps")
    named = next((each for each in (one, two) if not _is_row(each)), one)
    names = [each.name for each in named.type]
    return tuple(
        _with_fields(function, each, values, names)
        for each, values in zip((one, two), zip(*made, strict=True), strict=True)
    )


def _is_row(value: Expression) -> bool:
    return isinstance(value, Call) and value.function == "struct"


def _field_at(struct: Expression, at: int) -> Expression:
    if isinstance(struct, Call) and struct.function == "struct":
        return struct.arguments[at]
    field = struct.type.field(at)
    return standardized(Call("get_field", (struct, Constant(field.name, TEXT)), field.type))


def _with_fields(function: str, struct: Expression, fields: Sequence[Expression], names: Sequence[str]) -> Expression:
    """Return a struct with fields of other types, and one of given values with other names, too."""
    if _is_row(struct):
        return row(fields, names)
    if [each.type for each in fields] != [each.type for each in struct.type]:
        raise misfit(function, [struct], "structs of the same types", "compare the fields, or cast them")
    return struct


def row(values: Sequence[Expression], names: Sequence[str]) -> Expression:
    """Return a struct of values; raise SchemaError if two of its fields have one name."""
    twice = [name for at, name in enumerate(names) if name.casefold() in (each.casefold() for each in names[:at])]
    if twice:
        raise SchemaError(f"two fields are named {twice[0]}", hint=f"give one another name: … AS {twice[0]}2")
    kind = pa.struct([pa.field(name, each.type) for name, each in zip(names, values, strict=True)])
    return Call("struct", tuple(values), kind)


def _struct(function: str, arguments: Sequence[Expression]) -> Expression:
    if not arguments:
        raise misfit(function, arguments, "one value or more")
    return row(arguments, [f"col{at + 1}" for at in range(len(arguments))])


def _named_struct(function: str, arguments: Sequence[Expression]) -> Expression:
    names = [str(each.value) for each in arguments[::2] if isinstance(each, Constant) and each.type == TEXT]
    if not arguments or 2 * len(names) != len(arguments):
        raise misfit(function, arguments, "pairs of a literal name and a value")
    return row(arguments[1::2], names)


def _between(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 3:
        raise misfit(function, arguments, "a value, a least and a greatest one")
    value, low, high = arguments
    return call("and", [call("ge", [value, low]), call("le", [value, high])])


def _in(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) < 2:
        raise misfit(function, arguments, "a value and what it may be equal to")
    if any(pa.types.is_struct(each.type) for each in arguments):
        value, *others = arguments
        return chain("or", [call("eq", [value, each]) for each in others])
    values = with_common_type(arguments)
    if pa.types.is_nested(values[0].type):
        raise misfit(function, arguments, "values that are not arrays, maps or structs")
    return Call(function, values, BOOLEAN)


def _logic(function: str, arguments: Sequence[Expression]) -> Expression:
    made = [implicit(each, BOOLEAN) for each in arguments]
    if None in made or len(made) != (1 if function == "not" else 2):
        raise misfit(function, arguments, "a condition" if function == "not" else "two conditions")
    return Call(function, tuple(each for each in made if each is not None), BOOLEAN)


def _of_any(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 1:
        raise misfit(function, arguments, "one value")
    return Call(function, tuple(arguments), BOOLEAN)


def _case(function: str, arguments: Sequence[Expression]) -> Expression:
    if function == "if" and len(arguments) == 2:
        arguments = [*arguments, Constant(None, NULL)]
    if len(arguments) < 3 or len(arguments) % 2 == 0:
        raise misfit(function, arguments, "conditions with their values, and the value for no condition")
    conditions = [implicit(each, BOOLEAN) for each in arguments[:-1:2]]
    if None in conditions or (function == "case" and any(each.type == NULL for each in arguments[:-1:2])):
        raise misfit(function, arguments, "conditions of type BOOLEAN")
    values = with_common_type([*arguments[1:-1:2], arguments[-1]])
    pairs = zip(conditions, values[:-1], strict=True)
    return Call("case", (*(each for pair in pairs for each in pair if each is not None), values[-1]), values[-1].type)


def _alike(function: str, arguments: Sequence[Expression]) -> Expression:
    name = {"ifnull": "coalesce", "nvl": "coalesce"}.get(function, function)
    if len(arguments) < (1 if name == "coalesce" else 2):
        raise misfit(function, arguments, "several values")
    given = {each.type for each in arguments} - {NULL}
    if name in ("greatest", "least") and TEXT in given and len(given) > 1:
        raise misfit(function, arguments, "values of one type", "cast the text")
    values = with_common_type(arguments)
    return Call(name, values, values[0].type)


def _nullif(function: str, arguments: Sequence[Expression]) -> Expression:
    if function == "nullifzero" and len(arguments) == 1:
        arguments = [*arguments, Constant(0, INT)]
    if len(arguments) != 2:
        raise misfit(function, arguments, "two values")
    return call("if", [call("eq", arguments), Constant(None, NULL), arguments[0]])


def _zeroifnull(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 1:
        raise misfit(function, arguments, "a number")
    return call("coalesce", [arguments[0], Constant(0, INT)])


def _nvl2(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 3:
        raise misfit(function, arguments, "a value, the result if there is one, and the result if there is none")
    return call("if", [call("is_not_null", arguments[:1]), *arguments[1:]])


def _concat(function: str, arguments: Sequence[Expression]) -> Expression:
    if function == "concat" and {each.type for each in arguments} == {BINARY}:
        return Call("bytes_concat", tuple(arguments), BINARY)
    arguments = [cast(each, TEXT) if each.type == BINARY else each for each in arguments]
    made = [implicit(each, TEXT) for each in arguments]
    if None in made or len(made) < (2 if function == "concat_ws" else 1):
        raise misfit(function, arguments, "text")
    return Call(function, tuple(each for each in made if each is not None), TEXT)


def _converted(dtype: pa.DataType, try_: bool, function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) == 2 and function.endswith(("to_date", "to_timestamp")):
        return cast(parsed(function, arguments, try_=try_), dtype)
    if len(arguments) != 1:
        raise misfit(function, arguments, "one value: what CAST reads")
    if function == "try_to_timestamp" and arguments[0].type in (FLOAT, DOUBLE):
        # Beyond its range, Spark's value is of the year 294247, and not null.
        return _timestamp_seconds("timestamp_seconds", arguments)
    return cast(arguments[0], dtype, try_=try_)


def _get_field(function: str, arguments: Sequence[Expression]) -> Expression:
    value, name = arguments
    if not (pa.types.is_struct(value.type) and isinstance(name, Constant)):
        raise SchemaError(f"{value} is of type {spark_name(value.type)}", expected="a struct")
    asked = str(name.value)
    alike = [each for each in value.type if each.name == asked]
    alike = alike or [each for each in value.type if each.name.casefold() == asked.casefold()]
    if len(alike) != 1:
        near = difflib.get_close_matches(asked, [each.name for each in value.type], 1)
        raise SchemaError(
            f"the field {asked!r} of {value} is ambiguous" if alike else f"{value} has no field {asked}",
            expected=f"one of {', '.join(each.name for each in value.type)}",
            hint=f"{near[0]} is the nearest name" if near else "",
        )
    if isinstance(value, Call) and value.function == "struct":
        return value.arguments[[each.name for each in value.type].index(alike[0].name)]
    return standardized(Call(function, (value, Constant(alike[0].name, TEXT)), alike[0].type))


def _element(function: str, arguments: Sequence[Expression]) -> Expression:
    ok = len(arguments) == 2 and pa.types.is_list(arguments[0].type) and is_integral(arguments[1].type)
    if not ok:
        raise misfit(function, arguments, "an array and a whole number")
    array, index = arguments
    return standardized(Call(function, (array, cast(index, LONG)), array.type.value_type))


def _size(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 1 or not pa.types.is_list(arguments[0].type):
        raise misfit(function, arguments, "an array")
    return Call("size", tuple(arguments), INT)


def _contained(function: str, arguments: Sequence[Expression]) -> Expression:
    array, value = arguments if len(arguments) == 2 else (None, None)
    if array is None or value is None or not pa.types.is_list(array.type):
        raise misfit(function, arguments, "an array, and a value of the type of its elements")
    kind = standard(array.type.value_type)
    if (
        value.type == NULL
        or pa.types.is_nested(kind)
        or common([value.type, kind]) != kind
        or kind != array.type.value_type
    ):
        raise misfit(function, arguments, "an array, and a value of the type of its elements")
    return Call(function, (array, cast(value, kind)), BOOLEAN)


def _array_joined(function: str, arguments: Sequence[Expression]) -> Expression:
    text = bool(arguments) and pa.types.is_list(arguments[0].type) and arguments[0].type.value_type == TEXT
    if not text or not 2 <= len(arguments) <= 3 or any(each.type != TEXT for each in arguments[1:]):
        raise misfit(function, arguments, "an array of text, what to put between, and what to put for null")
    return Call(function, tuple(arguments), TEXT)


def _date_field(function: str, arguments: Sequence[Expression]) -> Expression:
    name = {"dayofmonth": "day"}.get(function, function)
    return Signature(INT, (DATE,), name=name)(function, arguments)


def _date_part(function: str, arguments: Sequence[Expression]) -> Expression:
    part = arguments[0] if len(arguments) == 2 else None
    if not isinstance(part, Constant) or str(part.value).lower() not in _PARTS:
        raise misfit(function, arguments, f"a part of the time and the time; the part is one of {', '.join(_PARTS)}")
    if arguments[1].type == DURATION:
        return part_of(str(part.value), arguments[1])
    return call(_PARTS[str(part.value).lower()], arguments[1:])


_PARTS = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "weekofyear",
    "day": "day",
    "dayofweek": "dayofweek",
    "dow": "dayofweek",
    "doy": "dayofyear",
    "hour": "hour",
    "minute": "minute",
    "second": "second_with_fraction",
}


def _timestamp_seconds(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 1 or not (is_number(arguments[0].type) or arguments[0].type == NULL):
        raise misfit(function, arguments, "a number of seconds")
    value = arguments[0]
    if is_integral(value.type) or value.type == NULL:
        return Signature(TIMESTAMP, (LONG,))(function, arguments)
    if value.type == FLOAT:
        value = cast(value, DOUBLE)
    return Call(function, (value,), TIMESTAMP)


def _timestamp_of(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 1 or not (is_integral(arguments[0].type) or arguments[0].type == NULL):
        raise misfit(function, arguments, "a whole number")
    return Signature(TIMESTAMP, (LONG,))(function, arguments)


@functools.cache
def _rules() -> Mapping[str, Rule]:
    rules: dict[str, Rule] = {**ARITHMETIC, **DOUBLE_RULES, **BIT_RULES, **MONTH_RULES, **SEQUENCE_RULES}
    rules |= dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "equal_null"), _comparison)
    rules |= dict.fromkeys(("and", "or", "not"), _logic)
    rules |= dict.fromkeys(("is_null", "is_not_null"), _of_any)
    rules |= {"isnull": lambda _, given: _of_any("is_null", given), "between": _between, "in": _in}
    rules |= {"isnotnull": lambda _, given: _of_any("is_not_null", given), "isnan": _simple(BOOLEAN, DOUBLE)}
    rules |= {"case": _case, "if": _case, "iff": lambda _, given: _case("if", given)}
    rules |= dict.fromkeys(("coalesce", "ifnull", "nvl", "greatest", "least"), _alike)
    rules |= {"nullif": _nullif, "nullifzero": _nullif, "zeroifnull": _zeroifnull, "nvl2": _nvl2}
    rules |= _text_rules()
    rules |= _time_rules()
    rules |= {
        "get_field": _get_field,
        "struct": _struct,
        "row": _struct,
        "named_struct": _named_struct,
        "get": _element,
        "get_item": _element,
        "element_at": _element,
        "try_element_at": _element,
        **dict.fromkeys(("size", "cardinality", "array_size"), _size),
        "array_contains": _contained,
        "array_join": _array_joined,
    }
    casts = {"boolean": BOOLEAN, "tinyint": BYTE, "smallint": SHORT, "int": INT, "bigint": LONG, "float": FLOAT}
    casts |= {"double": DOUBLE, "string": TEXT, "date": DATE, "timestamp": TIMESTAMP}
    casts |= {"to_date": DATE, "to_timestamp": TIMESTAMP}
    rules |= {name: functools.partial(_converted, dtype, False) for name, dtype in casts.items()}
    tried = {"try_to_date": DATE, "try_to_timestamp": TIMESTAMP}
    return rules | {name: functools.partial(_converted, dtype, True) for name, dtype in tried.items()}


def _text_rules() -> dict[str, Rule]:
    rules: dict[str, Rule] = {"concat": _concat, "concat_ws": _concat}
    substring = _simple(TEXT, TEXT, INT, INT, optional=1, name="substring")
    rules |= dict.fromkeys(("substring", "substr"), substring)
    rules |= dict.fromkeys(("left", "right", "repeat"), _simple(TEXT, TEXT, INT))
    length = _simple(INT, TEXT, name="length")
    rules |= dict.fromkeys(("length", "len", "char_length", "character_length"), length)
    rules |= {"octet_length": _simple(INT, TEXT)}
    rules |= {"upper": _letters, "ucase": lambda _, given: _letters("upper", given)}
    rules |= {"lower": _letters, "lcase": lambda _, given: _letters("lower", given)}
    rules |= {"btrim": _simple(TEXT, TEXT, TEXT, optional=1, name="trim")}
    rules |= dict.fromkeys(("trim", "ltrim", "rtrim"), _trimmed)
    rules |= {"replace": _simple(TEXT, TEXT, TEXT, TEXT, optional=1), "split_part": _simple(TEXT, TEXT, TEXT, INT)}
    rules |= dict.fromkeys(("lpad", "rpad"), _simple(TEXT, TEXT, INT, TEXT, optional=1))
    rules |= dict.fromkeys(("like", "ilike"), _simple(BOOLEAN, TEXT, TEXT, TEXT, optional=1))
    rules |= dict.fromkeys(("rlike", "regexp", "regexp_like"), _simple(BOOLEAN, TEXT, TEXT, name="rlike"))
    rules |= {"regexp_extract": _simple(TEXT, TEXT, TEXT, INT, optional=1)}
    rules |= {"regexp_replace": _simple(TEXT, TEXT, TEXT, TEXT)}
    rules |= dict.fromkeys(("contains", "startswith", "endswith"), _simple(BOOLEAN, TEXT, TEXT))
    rules |= {"reverse": _reversed, "initcap": _simple(TEXT, TEXT), "translate": _simple(TEXT, TEXT, TEXT, TEXT)}
    rules |= {"bit_length": _simple(INT, TEXT), "space": _space}
    rules |= {**POSITION_RULES, **ENCODING_RULES, **DIGEST_RULES, **HASH_RULES, "decode": _decoded}
    length = functools.partial(on_bytes, name="bytes_length", result=INT)
    rules |= {
        name: length(rules[name]) for name in ("length", "len", "char_length", "character_length", "octet_length")
    }
    rules |= {name: on_bytes(rules[name], "bytes_substring", INT, INT) for name in ("substr", "substring")}
    return rules | {"left": on_bytes(rules["left"], "bytes_left", INT)}


def _space(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 1:
        raise misfit(function, arguments, "space(INT)")
    return call("repeat", [Constant(" ", TEXT), *arguments])


def _letters(function: str, arguments: Sequence[Expression]) -> Expression:
    """Return text in upper or lower case. As in Spark, ``lower(upper(t))`` is ``lower(t)``."""
    made = Signature(TEXT, (TEXT,))(function, arguments)
    assert isinstance(made, Call)
    inner = made.arguments[0]
    if isinstance(inner, Call) and inner.function in ("lower", "upper"):
        return Call(function, inner.arguments, TEXT)
    return made


def _trimmed(function: str, arguments: Sequence[Expression]) -> Expression:
    """Return text without characters at its ends. Unlike in ``btrim``, Spark's first argument is the characters."""
    return Signature(TEXT, (TEXT, TEXT), optional=1)(function, list(reversed(arguments)))


def _reversed(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) == 1 and pa.types.is_list(arguments[0].type):
        return Call(function, tuple(arguments), arguments[0].type)
    return Signature(TEXT, (TEXT,))(function, arguments)


def _decoded(function: str, arguments: Sequence[Expression]) -> Expression:
    """Return ``decode(x, search, result, …, default)`` as a CASE in which null equals null, or decode bytes."""
    if len(arguments) < 3:
        return ENCODING_RULES["decode"](function, arguments)
    value, *pairs = arguments
    default = pairs.pop() if len(pairs) % 2 else Constant(None, NULL)
    parts: list[Expression] = []
    for search, result in zip(pairs[::2], pairs[1::2], strict=True):
        parts += [call("eq_null_safe", [value, search]), result]
    return call("case", [*parts, default])


def _time_rules() -> dict[str, Rule]:
    fields = ("year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "weekofyear")
    rules: dict[str, Rule] = dict.fromkeys(fields, _date_field)
    rules |= dict.fromkeys(("hour", "minute", "second"), _simple(INT, TIMESTAMP))
    rules |= {"second_with_fraction": _simple(pa.decimal128(8, 6), TIMESTAMP)}
    rules |= dict.fromkeys(("date_part", "extract", "datepart"), _date_part)
    rules |= {"date_trunc": _simple(TIMESTAMP, TEXT, TIMESTAMP), "trunc": _simple(DATE, DATE, TEXT)}
    rules |= dict.fromkeys(("unix_seconds", "unix_millis", "unix_micros"), _simple(LONG, TIMESTAMP))
    rules |= {"timestamp_seconds": _timestamp_seconds}
    rules |= dict.fromkeys(("timestamp_millis", "timestamp_micros"), _timestamp_of)
    rules |= {"unix_date": _simple(INT, DATE), "date_from_unix_date": _simple(DATE, INT)}
    rules |= {**FORMAT_RULES, **INTERVAL_RULES}
    return rules | {"date_sub": _simple(DATE, DATE, INT)}
