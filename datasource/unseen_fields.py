"""Types, as a selection needs them, for fields that a sample shows only as nulls."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from .selection import selected_paths

__all__ = ["with_unseen_fields"]

_Path = Sequence[str]


def with_unseen_fields(text: str, raw: pa.Schema) -> pa.Schema:
    """Return an inferred schema without columns of nulls.

    Change data has an object before and one after each change; in the first rows, which insert, the one before is null.
    Where the selection `text` names fields of a null column, it becomes a struct of these, with the types that another
    struct beside it has for them. All others become text.
    """
    return pa.schema(_seen(list(raw), selected_paths(text)))


def _seen(fields: Sequence[pa.Field], paths: Sequence[_Path]) -> list[pa.Field]:
    beside = [field.type for field in fields if pa.types.is_struct(field.type)]
    return [field.with_type(_kind(field.type, _within(field.name, paths), beside)) for field in fields]


def _kind(kind: pa.DataType, paths: Sequence[_Path], beside: Sequence[pa.StructType] = ()) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(_seen(list(kind), paths))
    if pa.types.is_list(kind):
        return pa.list_(_kind(kind.value_type, []))
    if not pa.types.is_null(kind):
        return kind
    if not paths:
        return pa.string()
    names = {path[0].casefold(): path[0] for path in paths}
    for other in beside:
        same = {field.name.casefold(): field for field in other}
        if names.keys() <= same.keys():
            return pa.struct(_seen([same[name] for name in names], paths))
    return pa.struct([pa.field(name, _kind(kind, _within(name, paths))) for name in names.values()])


def _within(name: str, paths: Sequence[_Path]) -> list[_Path]:
    return [path[1:] for path in paths if len(path) > 1 and path[0].casefold() == name.casefold()]
