"""Names and arguments of an earlier release that still work: each use warns, and the warning says what to write."""

from __future__ import annotations

import warnings
from collections.abc import Collection, MutableMapping
from typing import Any

from .errors import OptionError

__all__ = ["refuse_unknown", "renamed_argument", "warn_deprecated"]


def warn_deprecated(old: str, instead: str, *, level: int = 1) -> None:
    """Warn of a deprecated name.

    Parameters
    ----------
    old
        The name as the caller wrote it.
    instead
        The name to use instead.
    level
        The number of calls between the caller and the function that calls this one.
    """
    warnings.warn(
        f"{old} is deprecated and a later release removes it: use {instead}", DeprecationWarning, stacklevel=level + 2
    )


def renamed_argument(
    function: str, given: MutableMapping[str, Any], old: str, new: str, value: Any, *, level: int = 1
) -> Any:
    """Return the value of a renamed argument, and remove its old name from the other arguments.

    Parameters
    ----------
    function
        The function's name, for messages.
    given
        Arguments by names that the function does not declare.
    old, new
        The argument's names.
    value
        The value by the new name; None for nothing.
    level
        As for :func:`warn_deprecated`.

    Raises
    ------
    OptionError
        Both names are given.
    """
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
    """Refuse the names that are left after the earlier names were taken out.

    Raises
    ------
    TypeError
        There is one, as Python raises it for a function that declares all of its arguments.
    """
    if others:
        raise TypeError(f"{function}() got an unexpected keyword argument {next(iter(others))!r}")
