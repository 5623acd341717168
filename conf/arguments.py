"""Checks of public keyword arguments: accept what the option of that name accepts, else raise OptionError."""

from __future__ import annotations

import os
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from .errors import OptionError
from .options import positive_int
from .units import parse_bytes, parse_duration_us

__all__ = [
    "bytes_argument",
    "column_argument",
    "count_argument",
    "duration_argument",
    "frame_argument",
    "names_argument",
    "path_argument",
    "text_argument",
    "whole_argument",
]


def whole_argument(name: str, value: Any) -> int | None:
    """Return a whole number of at least 1, given as a number or as text; None stays None."""
    if value is None:
        return None
    parser = positive_int()
    try:
        return int(parser.parse(str(value)))
    except ValueError:
        raise _refused(name, value, parser.expected) from None


def bytes_argument(name: str, value: Any) -> int | None:
    """Return the bytes of a size such as ``"512 MB"``, or of a number of at least 1; None stays None."""
    if value is None:
        return None
    try:
        found = -1 if isinstance(value, bool) else parse_bytes(str(value))
    except ValueError:
        found = -1
    if found < 1:
        raise OptionError(f"{name}={value!r}", expected="a size such as '512 MB'", hint=f"correct {name}")
    return found


def count_argument(name: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number of at least `least`. Refuse text: a caller that computes a number needs no parser."""
    if not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least:
        return int(value)
    raise OptionError(f"{name}={value!r}", expected=f"a whole number, at least {least}", hint=f"correct {name}")


def column_argument(name: str, value: Any) -> Any:
    """Return a Spark column, or its expression as text; None stays None."""
    from pyspark.sql import Column

    if isinstance(value, Column):
        return value
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise _refused(name, value, "a column or an SQL expression")


def duration_argument(name: str, value: Any, *, such_as: str = "'10 minutes'") -> int:
    """Return the microseconds of a duration."""
    try:
        if isinstance(value, str):
            return parse_duration_us(value)
    except ValueError:
        pass
    raise OptionError(f"{name}={value!r}", expected=f"a duration such as {such_as}", hint=f"correct {name}")


def frame_argument(name: str, value: Any) -> Any:
    """Return a Spark DataFrame."""
    from pyspark.sql import DataFrame

    if isinstance(value, DataFrame):
        return value
    raise _refused(name, value, "a DataFrame of Spark's")


def text_argument(name: str, value: Any) -> str | None:
    """Return a non-empty text; None stays None."""
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise _refused(name, value, "a text")


def path_argument(name: str, value: Any) -> str:
    """Return a path or an address as text."""
    try:
        found = os.fspath(value)
    except TypeError:
        found = None
    if isinstance(found, str) and found.strip():
        return found
    raise _refused(name, value, "a folder or an address")


def names_argument(name: str, value: Any) -> str | Sequence[str] | None:
    """Return the name of a column, or several; None stays None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value and all(isinstance(each, str) and each for each in value):
        return value
    raise _refused(name, value, "the name of a column, or a list of several")


def _refused(name: str, value: Any, expected: str) -> OptionError:
    return OptionError(f"{name}={value!r} is not {expected}", expected=expected, hint=f"correct {name}")
