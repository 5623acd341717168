"""Earlier names of the arguments of ``UpdateStream.window``."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypedDict, TypeVar, cast, get_args

from ...conf.deprecation import renamed_argument, warn_deprecated
from ...conf.errors import OptionError
from .emission import Arguments, Emit, arguments_for, written

__all__ = ["EarlierNames", "with_earlier_names"]

P = ParamSpec("P")
T = TypeVar("T")

_FUNCTION = "UpdateStream.window"


class EarlierNames(TypedDict, total=False):
    """Arguments of ``UpdateStream.window`` that have another name now, or that no job needs to give."""

    emit: Emit
    checkpoint_location: str | os.PathLike[str] | None


def with_earlier_names(window: Callable[P, T]) -> Callable[P, T]:
    """Return the method that also accepts ``range`` for `duration`, and ``emit`` for `output` and `early`."""
    called = cast("Callable[..., T]", window)

    @functools.wraps(window)
    def renamed(*args: P.args, **kwargs: P.kwargs) -> T:
        given: dict[str, Any] = {**kwargs}
        if "range" in given:
            duration = args[1] if len(args) > 1 else given.get("duration")
            given["duration"] = renamed_argument(_FUNCTION, given, "range", "duration", duration)
        if "emit" in given:
            emit = given.pop("emit")
            today = _today(emit, [name for name in ("output", "early") if name in given])
            warn_deprecated(f"{_FUNCTION}(emit={emit!r})", written(emit))
            given |= today
        return called(*args, **given)

    return renamed


def _today(emit: Any, beside: list[str]) -> Arguments:
    """Return today's arguments for an emission; `beside` are those that are given too, which is refused."""
    if beside:
        raise OptionError(
            f"both {', '.join(beside)} and emit are given",
            expected="output and early",
            hint="leave emit out, their name in earlier releases",
        )
    if emit not in get_args(Emit):
        raise OptionError(
            f"emit={emit!r}",
            expected="one of " + ", ".join(get_args(Emit)),
            hint="write output and early instead: emit is their name in earlier releases",
        )
    return arguments_for(emit)
