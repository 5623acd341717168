"""A key as people type it: texts that are parsed in the types of the key's columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conf.column_names import spark_name
from ...conf.errors import OptionError, SchemaError
from ..spec.key_names import key_named

if TYPE_CHECKING:
    from ..spec.layout import Layout

__all__ = ["text_key"]


def text_key(layout: Layout, location: str, given: Sequence[str]) -> list[pa.Array]:
    """Return a key's values as columns of one row, in the types of the table's key.

    Each text is ``NAME=VALUE``, in any order, or ``VALUE`` if the key is one column. Any other text is an OptionError.
    """
    names, kinds = layout.key, layout.key_types
    fields = {name: json.loads(kind) for name, kind in layout.fields}
    shown = [spark_name(name, fields) for name in names]
    expected = " ".join(f"--key '{name}=<{kind}>'" for name, kind in zip(shown, kinds, strict=True))
    found: dict[str, str] = {}
    for each in given:
        text, equals, value = each.partition("=")
        name = _named(text.strip(), fields) if equals else None
        if name is None or name not in names:
            if len(names) != 1:
                raise OptionError(
                    f"{each!r} names no column of the key of the table at {location}",
                    expected=expected or "a table with a key",
                )
            name, value = names[0], each
        if name in found:
            raise OptionError(f"the column {text.strip()!r} of the key is given twice", expected=expected)
        found[name] = value
    if missing := [each for each, name in zip(shown, names, strict=True) if name not in found]:
        raise OptionError(
            f"{', '.join(missing)} is missing from the key of the table at {location}",
            expected=expected or "a table with a key",
        )
    return [_parsed(found[name], kind, name) for name, kind in zip(names, kinds, strict=True)]


def _named(text: str, fields: dict[str, Any]) -> str | None:
    try:
        return key_named(text, fields)
    except SchemaError:
        return None


def _parsed(text: str, kind: pa.DataType, name: str) -> pa.Array:
    try:
        if pa.types.is_binary(kind):
            return pa.array([bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()], kind)
        if pa.types.is_struct(kind):
            return pa.array([json.loads(text)], kind)
        return pa.array([text]).cast(kind)
    except (ValueError, TypeError, OverflowError, pa.ArrowNotImplementedError) as error:
        raise OptionError(
            f"{text!r} is no value of the key column {name!r}, which is {kind}",
            expected="a number as it is, a date as 2024-02-29, a time as 2024-02-29T10:00:00Z (without the Z where the "
            "column has no zone), "
            "binary as 0x00ff, a struct as JSON",
        ) from error
