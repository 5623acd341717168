"""The key of a command: as people type it, its bucket, and its rows in a data file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...conf.column_names import columns_of, path_name, resolved, spark_name
from ...conf.errors import OptionError, TableError
from ...conf.locations import absolute_location
from ...core.rows.buckets import bucket_of
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import Mask
from ...core.rows.newest import key_codes
from ...storage.folder import TableFolder
from ..spec.key_names import tree_of
from ..table.contents import recorded_layout

if TYPE_CHECKING:
    from ...delta_format.deletion_vectors import DeletionVector
    from ..spec.layout import Layout
    from ..table.files import DataFiles


def key_bucket(path: str, *key: Any, storage: Mapping[str, str] | None = None) -> int:
    """Return the bucket of a table with the rows of a key; see :meth:`~upstream.LatestTable.key_bucket`."""
    given = storage or {}
    with TableFolder(absolute_location(path), given).guarded():
        target, _, layout = recorded_layout(path, given)
    return int(bucket_of(typed_key(layout, target.location, key), layout.buckets)[0])


def typed_key(layout: Layout, location: str, key: Sequence[Any]) -> list[pa.Array]:
    """Return a key's values as columns of one row, in the types of the table's key.

    Values that do not fit, in number or type, are an OptionError.
    """
    names, types = layout.key, layout.key_types
    expected = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True)) or "a table with a key"
    if len(key) != len(names) or not names:
        raise OptionError(
            f"{len(key)} values for the key of the table at {location}", expected=f"one each for {expected}"
        )
    try:
        columns = [pa.array([value], kind) for value, kind in zip(key, types, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        columns = []
    cut = any(
        pa.types.is_integer(column.type) and column[0].as_py() != value
        for column, value in zip(columns, key, strict=False)
    )
    if not columns or cut or None in key:  # Arrow makes 1 of 1.5
        raise OptionError(f"{key!r} is no key of the table at {location}", expected=f"values of the types {expected}")
    return columns


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
    path = resolved(text, tree_of(fields))
    return None if path is None else path_name(path)


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


@dataclasses.dataclass(frozen=True)
class FileWithKey:
    """A file that holds rows of the key."""

    path: str
    live: int  # rows of the key that readers see
    dead: int  # rows of the key that readers do not see
    kept: pa.Table  # the other live rows


class KeyRows:
    """A search for the rows of one key. Each of the key's values is a column of one row."""

    def __init__(self, names: Sequence[str], values: Sequence[pa.Array]) -> None:
        self._names = tuple(names)
        self._values = tuple(values)

    def among(self, rows: pa.Table) -> Mask:
        """Return which rows have the key, by the same equality as in a batch."""
        if rows.num_rows == 0:
            return np.zeros(0, dtype=np.bool_)
        columns = columns_at(rows, self._names)
        stacked = [
            pa.chunked_array([*column.chunks, value.cast(column.type)], column.type)
            for column, value in zip(columns, self._values, strict=True)
        ]
        codes, _ = key_codes(stacked)
        return codes[:-1] == codes[-1]

    def found_in(self, files: DataFiles, path: str, vector: DeletionVector | None) -> FileWithKey | None:
        """Return the file's rows of the key; None if it has none, dead rows included."""
        try:
            columns = list(dict.fromkeys(columns_of(self._names, files.schema.names)))
            mine = self.among(files.read_rows([path], columns=columns))
            if not mine.any():
                return None
            dead = files.dead(vector, len(mine))
            kept = files.read_rows([path], [dead | mine])
        except FileNotFoundError as error:
            raise TableError(
                f"a file of the table is gone: {error}",
                expected="a table that `upstream check` finds right",
                hint="run `upstream repair` first",
            ) from error
        return FileWithKey(path, int((mine & ~dead).sum()), int((mine & dead).sum()), kept)
