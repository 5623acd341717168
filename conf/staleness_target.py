"""Staleness targets such as ``"p99 < 10 s"``."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal, Protocol, cast

from .errors import OptionError
from .units import format_duration_us, parse_duration_us

__all__ = ["Figures", "StalenessTarget"]

Figure = Literal["mean", "p50", "p99", "max"]

_TARGET = re.compile(r"\s*(?P<figure>[a-z0-9]+)\s*(?P<relation><=|<)\s*(?P<bound>.+?)\s*", re.IGNORECASE)
_FIGURES = ("mean", "p50", "p99", "max")


class Figures(Protocol):
    """The staleness figures of an interval, a run, or a prediction, in seconds."""

    @property
    def mean(self) -> float: ...
    @property
    def p50(self) -> float: ...
    @property
    def p99(self) -> float: ...
    @property
    def max(self) -> float: ...


@dataclasses.dataclass(frozen=True)
class StalenessTarget:
    """A bound on one staleness figure."""

    figure: Figure
    bound_us: int
    inclusive: bool = False  # `<=` rather than `<`

    @classmethod
    def parse(cls, text: str) -> StalenessTarget:
        """Parse a target such as ``"p99 < 10 s"``; raise OptionError for other text, or if nothing can meet it."""
        match = _TARGET.fullmatch(text)
        if match is None or match["figure"].lower() not in _FIGURES:
            raise _refused(text, f"{' or '.join(_FIGURES)}, then < or <=, then a duration, such as 'p99 < 10 s'")
        try:
            bound = parse_duration_us(match["bound"])
        except ValueError:
            raise _refused(text, "a duration after the sign, such as '10 s', '250 ms' or '1 minute'") from None
        inclusive = match["relation"] == "<="
        if bound == 0 and not inclusive:
            raise _refused(text, "a bound above 0: staleness is never negative")
        return cls(cast("Figure", match["figure"].lower()), bound, inclusive)

    def met(self, figures: Figures) -> bool:
        value_us = float(getattr(figures, self.figure)) * 1e6
        return value_us <= self.bound_us if self.inclusive else value_us < self.bound_us

    def needed_rows_per_s(self, figures: Figures, batch_s: float, rows_per_s: float) -> float | None:
        """Return the capacity (results per second) that meets the bound, from a measurement at another capacity.

        None if a batch alone (`batch_s`) lasts as long as the bound. With n waiting keys and capacity C, a key waits
        n/C for its turn and one batch for its commit. So the age less the batch is inversely proportional to C. With
        fewer keys than a batch serves, the formula overestimates.
        """
        waited = float(getattr(figures, self.figure)) - batch_s
        allowed = self.bound_us / 1e6 - batch_s
        if allowed <= 0:
            return None
        return rows_per_s * max(waited, 0.0) / allowed

    def __str__(self) -> str:
        return f"{self.figure} {'<=' if self.inclusive else '<'} {format_duration_us(self.bound_us)}"


def _refused(text: str, expected: str) -> OptionError:
    return OptionError(f"{text!r} is no target for staleness", expected=expected)
