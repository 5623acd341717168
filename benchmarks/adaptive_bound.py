"""Measure completeness against latency on recorded streams, with fixed and learned bounds (``watermark=adaptive``)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from pyarrow import csv

from upstream.core.watermark.policies import FeedProgress, Policy

from .shapes import Curve, Figure, Panel
from .simulator import estimate
from .thesis_disorder import DATA, absent, ais_times, dns_times

__all__ = ["figure_adaptive"]

Int64s = npt.NDArray[np.int64]

_S = 1_000_000
_BATCH = 100
_FORESEEN = 0.02
FIXED_S = (1, 10, 30, 60, 120, 300, 600, 900, 3600)
TARGETS = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


@dataclasses.dataclass(frozen=True)
class PolicyOutcome:
    """Of one policy on one recording.

    Attributes
    ----------
    lag_s : float
        How far the low-watermark lies behind the largest time, on average over batches of 100 rows of the second half.
    late : float
        % of rows that came below it, of the second half.
    late_in_all : float
        The same of all rows, those included from which it learned.
    """

    lag_s: float
    late: float
    late_in_all: float


def outcome(times_us: Int64s, policy: Policy) -> PolicyOutcome:
    """Give a recording to a policy."""
    progress, lags, learned = FeedProgress(policy), list[int](), 0
    half = len(times_us) // 2
    for low in range(0, len(times_us), _BATCH):
        progress.observe(times_us[low : low + _BATCH])
        progress.close_batch(0)
        if low < half:
            learned = progress.late
        elif progress.largest is not None and progress.bound is not None:
            lags.append(progress.largest - progress.bound)
    late = 100 * (progress.late - learned) / (len(times_us) - half)
    return PolicyOutcome(float(np.mean(lags)) / _S, late, 100 * progress.late / len(times_us))


def bus_times() -> Int64s:
    """Return the times of two days of buses; the recording has no other order of arrival."""
    parts = [
        csv.read_csv(
            DATA / f"buses-2016-11-{day}.csv.gz", convert_options=csv.ConvertOptions(include_columns=["timestamp"])
        )
        for day in (24, 25)
    ]
    stamps = [part.column("timestamp").cast("timestamp[us]").cast("int64").to_numpy() for part in parts]
    return np.sort(np.concatenate(stamps))


RECORDINGS: dict[str, tuple[str, Callable[[], Int64s]]] = {
    "ships' positions": ("ais.csv.gz", ais_times),
    "name queries": ("dns.log.gz", dns_times),
    "buses": ("buses-2016-11-24.csv.gz", bus_times),
}


def figure_adaptive(quick: bool) -> Figure:
    """Plot the share of late rows over the lag, for fixed and for adaptive bounds."""
    del quick  # it is; and a bound that learns needs all of a recording
    title = "Fixed and adaptive bounds on recorded streams"
    for name, _ in RECORDINGS.values():
        if not (DATA / name).exists():
            return absent(title, DATA / name)
    panels: list[Panel] = []
    differs: list[str] = []
    remarks: list[str] = []
    for what, (_, read) in RECORDINGS.items():
        times = read()
        fixed = [outcome(times, Policy("bounded", delay_us=delay * _S)) for delay in FIXED_S]
        learned = [outcome(times, Policy("adaptive", delay_us=600 * _S, target_late=target)) for target in TARGETS]
        panels.append(
            Panel(
                what,
                "lag of the low-watermark, s",
                "late rows, %",
                [
                    Curve(name, [max(each.lag_s, 0.1) for each in found], [estimate([each.late]) for each in found])
                    for name, found in (("fixed bound", fixed), ("adaptive", learned))
                ],
                log_x=True,
            )
        )
        for target, each in zip(TARGETS, learned, strict=True):
            remarks.append(
                f"{what}: target {100 * target:g} %: {each.late:.3g} % late ({each.late_in_all:.3g} % of all), "
                f"{each.lag_s:.3g} s behind"
            )
            # The rarer it is, the less the past of a recording of minutes says of it: bursts come later than all before
            # them.
            if target >= _FORESEEN and each.late > 200 * target:
                differs.append(
                    f"{what}: {each.late:.3g} % late with a target of {100 * target:g} %, wanted twice it at most"
                )
            better = [b for b in fixed if b.lag_s < 0.8 * each.lag_s and b.late <= each.late]
            if better:
                differs.append(
                    f"{what}: with a target of {100 * target:g} % a fixed bound of {better[0].lag_s:g} s does better"
                )
        if any(b.lag_s < a.lag_s or b.late > a.late for a, b in itertools.pairwise(learned)):
            differs.append(f"{what}: with a smaller target more is late, or the low-watermark lags less")
    return Figure(title, panels, differs, remarks)
