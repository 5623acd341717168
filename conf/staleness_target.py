"""What a person asks of staleness: ``"p99 < 10 s"``."""

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
    """Whatever has the four figures, in seconds: an interval, a run, a prediction."""

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
    """A bound of one figure.

    Attributes
    ----------
    figure : str
        ``mean``, ``p50``, ``p99`` or ``max``.
    bound_us : int
        Microseconds.
    inclusive : bool
        Whether the bound itself is allowed.
    """

    figure: Figure
    bound_us: int
    inclusive: bool = False

    @classmethod
    def parse(cls, text: str) -> StalenessTarget:
        """Parse a target such as ``"p99 < 10 s"`` or ``"max <= 1 minute"``.

        Raises
        ------
        OptionError
            The text is no target, or one that nothing can meet.
        """
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
        """Return whether the figures keep to the bound."""
        value_us = float(getattr(figures, self.figure)) * 1e6
        return value_us <= self.bound_us if self.inclusive else value_us < self.bound_us

    def needed_rows_per_s(self, figures: Figures, batch_s: float, rows_per_s: float) -> float | None:
        """Return the capacity that would meet the bound, given a measurement at another capacity.

        None if no capacity would meet it, because a batch alone lasts as long as the bound.

        Parameters
        ----------
        figures
            Ages of results at their commit.
        batch_s
            Duration of a batch: the part of each age that a larger budget does not shorten.
        rows_per_s
            Results per second, as measured.

        Notes
        -----
        With n keys waiting and C results a second, each key waits n/C for its turn and a batch more for its commit;
        averaged over time, its staleness is half of n/C. So for any n, the age less the batch is inversely proportional
        to C, and may be at most the bound less the batch. The formula holds while more keys wait than a batch serves.
        With fewer keys, it overestimates.
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
