"""Names of queries, views and streams: words that can also name a folder."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...conf.errors import OptionError
from ..language.places import near

__all__ = ["check_name", "found", "known_name", "whole_view"]

# No path separator, no `=` (a partition's folder), nothing that an address escapes. Readers skip folders that
# begin with a dot or an underscore.
_NAME = re.compile(r"[^\W_][\w-]*")
_LONGEST = 100


def check_name(name: object, what: str) -> str:
    """Return a name of `what`, such as ``"a query"``; raise OptionError if it cannot name a table's folder."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.isdigit() or len(name.encode()) > _LONGEST:
        raise OptionError(
            f"{name!r} cannot name {what}",
            expected=f"letters, digits, '_' and '-'; a letter or a digit first, not digits alone, at most {_LONGEST} "
            "bytes",
            hint="choose another name: it also names a table's folder",
        )
    return name


def found(name: str, names: Iterable[str]) -> str | None:
    """Return the name as spelled among the known ones, ignoring case; None if it is not there."""
    lowered = name.lower()
    return next((each for each in names if each.lower() == lowered), None)


def known_name(name: object, names: Iterable[str], what: str) -> str:
    """Return the name as spelled among the known ones; raise OptionError with similar names if there is none."""
    known = list(names)
    spelled = found(name, known) if isinstance(name, str) else None
    if spelled is None:
        hint = near(str(name), known, all_of="there are") or f"register a {what} first"
        raise OptionError(f"there is no {what} '{name}'", expected=f"the name of a registered {what}", hint=hint)
    return spelled


def whole_view(view: str) -> str:
    """Return the query of all rows of a view, given a checked name.

    A view is checked by this query, so errors point into the view's own text.
    """
    return f"SELECT * FROM `{view}`"  # noqa: S608 a checked name
