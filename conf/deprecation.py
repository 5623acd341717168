"""Deprecated names and arguments: each use warns and names the replacement."""

from __future__ import annotations

import warnings
from collections.abc import Collection, MutableMapping
from typing import Any

from .errors import OptionError

__all__ = ["refuse_unknown", "renamed_argument", "warn_deprecated"]


def warn_deprecated(old: str, instead: str, *, level: int = 1) -> None:
    """Warn of a deprecated name. `level` counts the calls between the caller and the function that calls this one."""
    warnings.warn(
        f"{old} is deprecated and a later release removes it: use {instead}", DeprecationWarning, stacklevel=level + 2
    )


def renamed_argument(
    function: str, given: MutableMapping[str, Any], old: str, new: str, value: Any, *, level: int = 1
) -> Any:
    """Return a renamed argument's value, and remove its old name from `given`; raise OptionError if both are given."""
    if old not in given:
        return value
    before = given.pop(old)
    if value is not None:
        raise OptionError(
            f"both {new} and {old} are given", expected=new, hint=f"leave {old} out, its name in earlier releases"
        )
    warn_deprecated(f"{function}({old}=…)", f"{new}=", level=level + 1)
    return before


def refuse_unknown(function: str, others: Collection[str]) -> None:
    """Raise Python's TypeError for unexpected arguments if any names are left."""
    if others:
        raise TypeError(f"{function}() got an unexpected keyword argument {next(iter(others))!r}")
