"""A decaying histogram of how far rows are behind their feed's largest time, for the adaptive bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Lags"]

Int64s = npt.NDArray[np.int64]

# Bins to the octave: a quantile is right to 9 %, and never too small.
_PER_OCTAVE = 8


class Lags:
    """A histogram of lags with logarithmic bins, in which a row's weight halves with each `half_life` further rows.

    It decays at fixed row numbers, so the result does not depend on how the rows were split into calls.
    """

    def __init__(self, half_life: int, saved: Mapping[str, Any] | None = None) -> None:
        self._half_life = half_life
        self.rows: int = saved["rows"] if saved else 0
        self._counts = np.zeros(64 * _PER_OCTAVE + 1)
        for number, count in saved["bins"] if saved else ():
            self._counts[number] = count

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "bins": [[int(n), float(self._counts[n])] for n in np.flatnonzero(self._counts)]}

    def add(self, lag_us: Int64s) -> None:
        """Add the lags of further rows, none below 0, in the order of arrival."""
        at = 0
        while at < len(lag_us):
            part = lag_us[at : at + self._half_life - self.rows % self._half_life]
            octaves = np.log2(np.maximum(part, 1))
            number = np.where(part > 0, np.floor(octaves * _PER_OCTAVE).astype(np.int64) + 1, 0)
            self._counts += np.bincount(number, minlength=len(self._counts))
            self.rows += len(part)
            at += len(part)
            if self.rows % self._half_life == 0:
                self._counts /= 2  # exact: what is halved are whole numbers and halves of them

    def exceeded_by(self, share: float) -> int:
        """Return the least delay in microseconds that at most this share of rows exceeds, to the width of a bin.

        Before the first row it is 0.
        """
        beyond = np.cumsum(self._counts[::-1])[::-1]  # with a lag in this bin or a later one
        allowed = share * beyond[0]
        number = int(np.argmax(beyond[1:] <= allowed))  # the last bins are beyond all int64
        return math.ceil(2 ** (number / _PER_OCTAVE)) - 1
