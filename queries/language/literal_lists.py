"""Long lists of literals after IN, removed before a text is tokenized: each token costs 40 µs."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["take_lists"]

_LEAST = 100
"""Shorter lists are read as everything else."""

_NUMBER = r"-?[0-9]{1,18}"
_TEXT = r"'[^'\\]*'"
_PARTS = re.compile(
    r"[rR]'[^']*'|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|"
    + "|".join(
        rf"\bIN\s*\(\s*(?P<{name}>{one}(?:\s*,\s*{one}){{{_LEAST - 1},}})\s*\)"
        for name, one in (("numbers", _NUMBER), ("texts", _TEXT))
    ),
    re.IGNORECASE | re.DOTALL,
)


def take_lists(sql: str) -> tuple[str, Mapping[int, tuple[int, ...] | tuple[str, ...]]]:
    """Replace each long list of integers or texts by a 0 of the same length; return the text and the lists by place."""
    if sql.count(",") < _LEAST:
        return sql, {}
    lists: dict[int, tuple[int, ...] | tuple[str, ...]] = {}

    def taken(found: re.Match[str]) -> str:
        name = found.lastgroup
        if name is None:
            return found.group()
        start, end = found.span(name)
        written = found.group(name)
        if name == "numbers":
            lists[start] = tuple(int(each) for each in written.split(","))
        else:
            lists[start] = tuple(each[1:-1] for each in re.findall(_TEXT, written))
        before = found.start()
        return sql[before:start] + "0".ljust(end - start) + sql[end : found.end()]

    return _PARTS.sub(taken, sql), lists
