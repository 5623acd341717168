"""The bucket of a key's rows: with a filter on it, a reader skips all other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conf.errors import OptionError
from ...conf.locations import absolute_location
from ...core.rows.buckets import bucket_of
from ...storage.folder import TableFolder
from ..table.contents import recorded_layout

if TYPE_CHECKING:
    from ..spec.layout import Layout

__all__ = ["key_bucket", "typed_key"]


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
