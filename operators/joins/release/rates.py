"""Arrival rates of both inputs of a join, by the clock of their arrival."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

__all__ = ["HALF_LIFE_S", "ArrivalRates"]

HALF_LIFE_S = 60.0
"""The age in seconds at which a row counts half."""


@dataclasses.dataclass(frozen=True)
class ArrivalRates:
    """λ₁ and λ₂ of Hammad et al. §6, as averages in which older rows count less."""

    left: float = 0.0  # number of rows, discounted by their age
    right: float = 0.0  # likewise
    seconds: float = 0.0  # the time in which they arrived, discounted likewise
    clock_us: int | None = None  # the last arrival; None before the first one

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArrivalRates:
        """Return the inverse of :meth:`to_json`; no rates for an empty mapping."""
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def per_second(self) -> tuple[float, float]:
        """The rates of the left and the right; 0 before any time has passed."""
        if self.seconds <= 0:
            return 0.0, 0.0
        return self.left / self.seconds, self.right / self.seconds

    def seen(self, left: int, right: int, now_us: int, half_life_s: float = HALF_LIFE_S) -> ArrivalRates:
        """Return the rates after a batch with its last arrival at `now_us`.

        The clock never moves back. Rows of the first batch do not count, since the time in which they arrived is
        unknown.
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
