"""Unreadable lines of JSON, found without Arrow's parser, which refuses them one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from typing import Any

import pyarrow as pa

__all__ = ["why_not"]


class _Number(str):
    __slots__ = ()


class _Fraction(_Number):
    __slots__ = ()


def _constant(name: str) -> Any:
    raise json.JSONDecodeError(f"{name} is no value", name, 0)


_DECODER = json.JSONDecoder(strict=False, parse_int=_Number, parse_float=_Fraction, parse_constant=_constant)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_WORDS = {
    type(None): "null",
    str: "a string",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
    _Number: "a number",
    _Fraction: "a number",
}


def why_not(line: bytes, schema: pa.Schema, times: Container[str]) -> str | None:
    """Return why a line is no object of a schema, if a reason is found. Members in `times` are text with a day."""
    try:
        value: Any = _DECODER.decode(line.decode())
    except UnicodeDecodeError:
        return "the text is not UTF-8"
    except json.JSONDecodeError as error:
        if not line.strip() or error.msg.startswith("Unexpected UTF-8 BOM"):
            return None
        return _several(line) or f"it is not JSON: {error.msg} at character {error.pos + 1}"
    except RecursionError:
        return None
    if not isinstance(value, dict):
        return f"the line is {_WORDS[type(value)]} and not an object"
    for field in schema:
        found = value.get(field.name)
        if found is None:
            continue
        expected = _expected(field.type)
        if expected and type(found) not in expected:
            return f"member {field.name!r} is {_WORDS[type(found)]} and not {_WORDS[expected[0]]}"
        if field.name in times and not _DAY.match(found):
            return f"{str(found)!r} in member {field.name!r} is no time"
        if pa.types.is_integer(field.type) and type(found) is _Fraction:
            return f"{str(found)!r} is not of type {field.type}"
    return None


def _several(line: bytes) -> str | None:
    text, at, count = line.decode().strip(), 0, 0
    while at < len(text):
        try:
            _, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError:
            return None
        count += 1
        at += len(text) - at - len(text[at:].lstrip())
    return f"the line holds {count} objects"


def _expected(dtype: pa.DataType) -> tuple[type, ...]:
    types = pa.types
    if types.is_boolean(dtype):
        return (bool,)
    if types.is_integer(dtype) or types.is_floating(dtype):
        return (_Number, _Fraction)
    if types.is_string(dtype):
        return (str,)
    if types.is_struct(dtype):
        return (dict,)
    if types.is_list(dtype):
        return (list,)
    return ()
