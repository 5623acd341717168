"""Distributions of ages that can be merged over tasks, shards, batches and a run."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..rows.exact_integers import Int64s

# Bins to the octave above the first: quantiles are right to 4.5 %. Native histograms have the same bounds: schema 3 in
# Prometheus, scale 3 in OpenTelemetry.
_PER_OCTAVE = 8
_FIRST_S = 2.0**-10
_HEAD = struct.Struct("<qdd")


def bin_bound_s(number: float) -> float:
    """Return the upper bound of a bin of :class:`Ages`, in seconds: 2^(n / 8 - 10)."""
    return _FIRST_S * 2 ** (number / _PER_OCTAVE)


@dataclasses.dataclass(frozen=True)
class Staleness:
    """The mean, the quantiles and the maximum of some ages, in seconds."""

    mean: float
    p50: float
    p99: float
    max: float


@dataclasses.dataclass(frozen=True)
class Ages:
    """A distribution of ages, in logarithmic bins."""

    count: int = 0
    total_s: float = 0.0  # exact, as is `max_s`
    max_s: float = 0.0
    # counts; bin 0 holds ages below 2^-10 seconds, and bin n those from the bound of bin n - 1 to its own
    bins: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, age_us: Int64s, count: Int64s | None = None) -> Ages:
        """Return the distribution of ages in µs, each `count` times. A negative age (a clock was set back) is 0."""
        if len(age_us) == 0:
            return cls()
        age = np.maximum(age_us, 0)
        many = np.ones(len(age), dtype=np.int64) if count is None else count
        octaves = np.log2(np.maximum(age, 1) / (_FIRST_S * 1e6))
        number = np.maximum(np.floor(octaves * _PER_OCTAVE).astype(np.int64) + 1, 0)
        held = np.bincount(number, weights=many).astype(np.int64)
        bins = {int(n): int(held[n]) for n in np.flatnonzero(held)}
        return cls(int(many.sum()), float((age * many).sum()) / 1e6, int(age.max()) / 1e6, bins)

    @classmethod
    def together(cls, parts: Iterable[Ages]) -> Ages:
        """Return the union of several distributions."""
        bins: dict[int, int] = {}
        count, total, most = 0, 0.0, 0.0
        for part in parts:
            count, total, most = count + part.count, total + part.total_s, max(most, part.max_s)
            for number, held in part.bins.items():
                bins[number] = bins.get(number, 0) + held
        return cls(count, total, most, dict(sorted(bins.items())))

    def quantile_s(self, share: float) -> float:
        """Return the age in seconds that a share of the ages does not exceed, to 4.5 %; 0 if there are none."""
        wanted, upto = np.ceil(share * self.count), 0
        for number, held in sorted(self.bins.items()):
            upto += held
            if upto >= max(wanted, 1):
                middle = bin_bound_s(number - 0.5) if number else 0.0
                return min(middle, self.max_s)
        return self.max_s

    def figures(self) -> Staleness | None:
        """Return the mean and the maximum exactly, and quantiles to 4.5 %; None if there are no ages."""
        if self.count == 0:
            return None
        return Staleness(self.total_s / self.count, self.quantile_s(0.5), self.quantile_s(0.99), self.max_s)

    def packed(self) -> bytes:
        """Return the distribution in a tenth of the memory, for :meth:`unpacked`."""
        bins = np.array([[*self.bins], [*self.bins.values()]], np.int64)
        return _HEAD.pack(self.count, self.total_s, self.max_s) + bins.tobytes()

    @classmethod
    def unpacked(cls, value: bytes) -> Ages:
        numbers, counts = np.frombuffer(value, np.int64, offset=_HEAD.size).reshape(2, -1).tolist()
        count, total_s, max_s = _HEAD.unpack_from(value)
        return cls(count, total_s, max_s, dict(zip(numbers, counts, strict=True)))

    def to_json(self) -> dict[str, Any]:
        return {"count": self.count, "total_s": self.total_s, "max_s": self.max_s, "bins": list(self.bins.items())}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ages:
        return cls(value["count"], value["total_s"], value["max_s"], dict(value["bins"]))
