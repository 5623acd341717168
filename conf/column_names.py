"""Names of columns and of struct fields as people write them: one rule for all options that name a key."""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterable, Mapping, Sequence

Tree = Mapping[str, "Tree | None"]
"""The names of a schema's columns, each with those of its fields; None where it is not a struct."""

_QUOTED = re.compile(r"`((?:[^`]|``)+)`(?!`)\s*")


def quoted(name: str) -> str:
    """Return a column's name in backticks, so that Spark reads its dots and backticks literally."""
    return "`" + name.replace("`", "``") + "`"


def quoted_text(text: str) -> str:
    """Return a text in quotes, as Spark's SQL has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def path_name(parts: Sequence[str]) -> str:
    """Return the unambiguous name of a column's field; the name of the column itself stays as it is."""
    return parts[0] if len(parts) == 1 else ".".join(quoted(part) for part in parts)


def spark_name(name: str, columns: Container[str]) -> str:
    """Return a name as Spark reads it: one of `columns` quoted, a name of :func:`path_name` unchanged."""
    return quoted(name) if name in columns else name


def columns_of(names: Sequence[str], columns: Container[str]) -> list[str]:
    """Return the column that each name means, or that has the field that the name means."""
    return [name if name in columns else parts_of(name)[0] for name in names]


@functools.lru_cache(maxsize=256)
def parts_of(name: str) -> tuple[str, ...]:
    """Split a field's name at its dots, as Spark does; raise ValueError for an open backtick or an empty part."""
    parts, _ = _parts(name, 0, "")
    if not all(parts):
        raise ValueError("an empty name")
    return tuple(parts)


def resolved(name: str, columns: Tree) -> tuple[str, ...] | None:
    """Return the path to the column or field that a name means, spelled as in the schema; None if there is none.

    ``a.b`` is the column `a.b`, or else the field `b` of `a`; `` `a`.`b` `` is always the field. An exact match wins.
    Among matches in another case, the first wins.
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
    """Split a list of names at commas outside of backticks; raise ValueError if names are absent, empty or repeated."""
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
    """Return a list that :func:`split_list` splits into these names, or into others with the same meaning."""
    return ",".join(name if _stays(name) else quoted(name) for name in names)


def _stays(name: str) -> bool:
    """Return whether :func:`split_list` returns a name unchanged."""
    try:
        return split_list(name) == (name,)
    except ValueError:
        return False


def _match(name: str, columns: Tree) -> str | None:
    if name in columns:
        return name
    return next((each for each in columns if each.lower() == name.lower()), None)


def _parts(text: str, at: int, separators: str) -> tuple[list[str], int]:
    """Return the names between dots from `at` on, and where they end: at a separator or at the end of the text."""
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
