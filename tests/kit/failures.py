"""Calls that fail."""

from collections.abc import Callable

import pytest

from upstream.conf.errors import OptionError, QueryError, SchemaError


def fails(
    match: str, function: Callable[..., object], *arguments: object, error: type[Exception] = QueryError, **more: object
) -> None:
    """Check that a call is an error that says so."""
    with pytest.raises(error, match=match):
        function(*arguments, **more)


def unfit(match: str, function: Callable[..., object], *arguments: object, **more: object) -> None:
    """Check that a call is refused for types or constants that do not fit."""
    fails(match, function, *arguments, error=SchemaError, **more)


def misused(match: str, function: Callable[..., object], *arguments: object, **more: object) -> None:
    """Check that a call is refused for a name or an option."""
    fails(match, function, *arguments, error=OptionError, **more)
