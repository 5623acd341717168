"""Names of columns, and of fields of structs in them, as people write them: one rule for all options that name a key.

A name is a column's, whatever is in it. Where there is no such column it is read as Spark reads names: dots go from a
struct to a field of it, and what is in backticks is one name, with a backtick in it doubled. So ``a.b`` is the column
`a.b`, or else the field `b` of `a`; and a field's own, unmistakable name has backticks around each part: `` `a`.`b` ``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterable, Mapping, Sequence

__all__ = ["Tree", "columns_of", "listed", "parts_of", "path_name", "quoted", "resolved", "spark_name", "split_list"]

Tree = Mapping[str, "Tree | None"]
"""The names of a schema's columns, each with those of its fields; None where it is no struct."""

_QUOTED = re.compile(r"`((?:[^`]|``)+)`(?!`)\s*")


def quoted(name: str) -> str:
    """A column's name as Spark reads it literally, whatever dots and backticks are in it."""
    return "`" + name.replace("`", "``") + "`"


def path_name(parts: Sequence[str]) -> str:
    """The unmistakable name of a column's field, or that of the column itself, which is its name as it is."""
    return parts[0] if len(parts) == 1 else ".".join(quoted(part) for part in parts)


def spark_name(name: str, columns: Container[str]) -> str:
    """As Spark reads it, the name of one of some columns, or else a field's as :func:`path_name` gives it."""
    return quoted(name) if name in columns else name


def columns_of(names: Sequence[str], columns: Container[str]) -> list[str]:
    """The columns that these names mean, or that have the fields they mean."""
    return [name if name in columns else parts_of(name)[0] for name in names]


@functools.lru_cache(maxsize=256)
def parts_of(name: str) -> tuple[str, ...]:
    """The names on the way to a field, as Spark reads them.

    Raises
    ------
    ValueError
        A backtick is not closed, or a part is empty.
    """
    parts, _ = _parts(name, 0, "")
    if not all(parts):
        raise ValueError("an empty name")
    return tuple(parts)


def resolved(name: str, columns: Tree) -> tuple[str, ...] | None:
    """The way to the column or the field that is meant, spelled as in the schema; None if there is none. Of names that
    differ in case alone, any will do.

    Parameters
    ----------
    name
        As the user has it.
    columns
        Of the schema.
    """
    whole = _match(name, columns)
    if whole is not None:
        return (whole,)
    try:
        parts = parts_of(name)
    except ValueError:
        return None
    found: list[str] = []
    inside: Tree | None = columns
    for part in parts:
        match = None if inside is None else _match(part, inside)
        if inside is None or match is None:
            return None
        found.append(match)
        inside = inside[match]
    return tuple(found)


def split_list(value: str) -> tuple[str, ...]:
    """Names that are separated by commas; one with a comma in it is in backticks.

    Raises
    ------
    ValueError
        There is none, one is empty or is there twice, or a backtick is not closed.
    """
    names: list[str] = []
    at, end = 0, len(value)
    while at < end:
        start = at + len(value[at:]) - len(value[at:].lstrip())
        parts, at = _parts(value, start, ",")
        raw = value[start:at].strip()
        # Around a name without dots backticks only keep the list from being divided there.
        names.append(parts[0] if len(parts) == 1 and raw.startswith("`") and "." not in parts[0] else raw)
        if not names[-1]:
            raise ValueError("an empty name")
        at += 1
        if at == end:
            raise ValueError("a comma at the end")
    if not names or len(set(names)) != len(names):
        raise ValueError("a name is given twice" if names else "")
    return tuple(names)


def listed(names: Iterable[str]) -> str:
    """A list that :func:`split_list` divides into these names, or into others that mean the same."""
    return ",".join(name if _stays(name) else quoted(name) for name in names)


def _stays(name: str) -> bool:
    """Whether a name comes out of a list as it is put into it."""
    try:
        return split_list(name) == (name,)
    except ValueError:
        return False


def _match(name: str, columns: Tree) -> str | None:
    if name in columns:
        return name
    return next((each for each in columns if each.lower() == name.lower()), None)


def _parts(text: str, at: int, separators: str) -> tuple[list[str], int]:
    """The names between dots from a place on, and where they end: at a separator or with the text."""
    parts: list[str] = []
    while True:
        if text.startswith("`", at):
            found = _QUOTED.match(text, at)
            if found is None:
                raise ValueError("a backtick is not closed")
            part, at = found[1].replace("``", "`"), found.end()
            if at < len(text) and text[at] not in "." + separators:
                raise ValueError(f"something follows the closing backtick of {part!r}")
        else:
            start = at
            while at < len(text) and text[at] not in "." + separators:
                at += 1
            part = text[start:at]
        parts.append(part)
        if not text.startswith(".", at):
            return parts, at
        at += 1
