"""How many rows a second come to both inputs of a join, by the clock of their arrival."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

__all__ = ["HALF_LIFE_S", "ArrivalRates"]

HALF_LIFE_S = 60.0
"""What came so long ago counts half."""


@dataclasses.dataclass(frozen=True)
class ArrivalRates:
    """λ₁ and λ₂ of Hammad et al. §6, as averages in which what is older counts less.

    Attributes
    ----------
    left, right : float
        Rows of each input, discounted by their age.
    seconds : float
        The time in which they came, discounted likewise.
    clock_us : int or None
        The last arrival; None before the first one.
    """

    left: float = 0.0
    right: float = 0.0
    seconds: float = 0.0
    clock_us: int | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArrivalRates:
        """Return the inverse of :meth:`to_json`; no rates for an empty mapping."""
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return dataclasses.asdict(self)

    @property
    def per_second(self) -> tuple[float, float]:
        """The rates of the left and the right; 0 before any time has passed."""
        if self.seconds <= 0:
            return 0.0, 0.0
        return self.left / self.seconds, self.right / self.seconds

    def seen(self, left: int, right: int, now_us: int, half_life_s: float = HALF_LIFE_S) -> ArrivalRates:
        """Return the rates after a batch.

        Parameters
        ----------
        left, right : int
            Rows of the batch.
        now_us : int
            The arrival of the last row or punctuation. A clock that jumps back stands still.
        half_life_s : float
            What came so long ago counts half.

        Notes
        -----
        Nobody knows in which time the rows of the first batch came, so they do not count.
        """
        if self.clock_us is None:
            return dataclasses.replace(self, clock_us=now_us or None)
        passed_s = max(now_us - self.clock_us, 0) / 1e6
        share = 0.5 ** (passed_s / half_life_s)
        return ArrivalRates(
            self.left * share + left,
            self.right * share + right,
            self.seconds * share + passed_s,
            max(now_us, self.clock_us),
        )
