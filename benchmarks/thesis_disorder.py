"""Figures 6-11 and 6-12 of Li's thesis: latency and error of windows over streams in disorder, by punctuation and by
slack; and on recorded streams.
"""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from upstream.core.rows.exact_integers import LOWEST
from upstream.operators.aggregates.functions import avg, count
from upstream.operators.aggregates.parts import Aggregate
from upstream.operators.windows.emission import expand
from upstream.operators.windows.kinds import SlidingWindows

from .shapes import Curve, Figure, Panel
from .simulator import estimate
from .window_query import Query, rows_table, window_plan

__all__ = ["DATA", "absent", "ais_times", "dns_times", "figure_6_11", "figure_6_12", "figure_ais", "figure_dns"]

Int64s = npt.NDArray[np.int64]

Results = dict[int, tuple[float, float]]
"""By window: its result, and when it was given."""

_S = 1_000_000

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Recorded streams, beside the checkout."""


@dataclasses.dataclass(frozen=True)
class Disorder:
    """A stream in the order of arrival, and the windows asked of it.

    Attributes
    ----------
    time_us, value : int64 arrays of length rows
    arrival : float array of length rows
        In the unit that latency is to be in.
    windows : SlidingWindows
    aggregate : Aggregate
    """

    time_us: Int64s
    value: Int64s
    arrival: npt.NDArray[np.float64]
    windows: SlidingWindows
    aggregate: Aggregate

    @cached_property
    def truth(self) -> dict[int, float]:
        """The result of each window over all its rows, whenever they come, by the windows' definition."""
        algebra = window_plan(self.windows, {"it": self.aggregate}).algebra
        row, wid = expand(*self.windows.wids(self.time_us))
        known, code = np.unique(wid, return_inverse=True)
        rows = pa.table({"v": self.value[row]})
        results = algebra.lower(algebra.lift(rows, code, len(known))).column("it")
        return dict(zip(known.tolist(), map(float, results.to_pylist()), strict=True))

    @cached_property
    def promised(self) -> Int64s:
        """The punctuation after each row if the stream is known: the least time that is still to come."""
        latest = np.minimum.accumulate(self.time_us[::-1])[::-1]
        return np.append(latest[1:], int(self.time_us.max()) + 1)

    @cached_property
    def covered(self) -> dict[int, float]:
        """The arrival of the punctuation that covers each window.

        It comes with the last row before the window's end; the end of the stream covers all.
        """
        wids = np.array(sorted(self.truth))
        at = np.searchsorted(self.windows.last_complete(self.promised), wids)
        return dict(zip(wids.tolist(), self.arrival[np.minimum(at, len(self.arrival) - 1)].tolist(), strict=True))

    def by_punctuation(self) -> Results:
        """Return the results of panes and punctuation."""
        query = Query(window_plan(self.windows, {"it": self.aggregate}, "paned"))
        return self._run(query, self.promised, np.ones(len(self.time_us), dtype=np.bool_))

    def by_slack(self, slack_us: int, *, consistent: bool) -> Results:
        """Return the results of the buffering implementation.

        Parameters
        ----------
        slack_us : int
        consistent : bool
            A row that is too late for one of its windows is left out of all (the thesis' consistent slack); else out of
            that one.
        """
        bound = np.maximum.accumulate(self.time_us) - slack_us
        before = np.append(LOWEST, self.windows.last_complete(bound)[:-1])
        use = self.windows.wids(self.time_us)[0] > before if consistent else np.ones(len(bound), dtype=np.bool_)
        return self._run(
            Query(window_plan(self.windows, {"it": self.aggregate}, "buffering", slack_us=slack_us)), bound, use
        )

    def _run(self, query: Query, bound: Int64s, use: npt.NDArray[np.bool_]) -> Results:
        found: Results = {}
        complete = self.windows.last_complete(bound)
        # Windows close where the bound passes their end: batches that end there give what row by row gives.
        ends = np.flatnonzero(complete > np.append(LOWEST, complete[:-1])) + 1
        low = 0
        for end in [*ends.tolist(), len(bound)]:
            mine = np.flatnonzero(use[low:end]) + low
            rows = rows_table(np.zeros(len(mine), dtype=np.int64), self.time_us[mine], self.value[mine])
            for each in query.batch(rows, {"feed": int(bound[end - 1])}):
                found[each["window_id"]] = each["it"], float(self.arrival[end - 1])
            low = end
        for each in query.batch(None, {"feed": None}):
            found[each["window_id"]] = each["it"], float(self.arrival[-1])
        return found


@dataclasses.dataclass(frozen=True)
class SlackOutcome:
    """Of one slack.

    Attributes
    ----------
    latency : float
        How long after the arrival of the punctuation that covers a window its result is given, on average; 0 for one
        that is given before.
    wrong : float
        % of windows whose result is not the true one.
    error : float
        Mean of the differences to the true results, in % of these.
    """

    latency: float
    wrong: float
    error: float


def outcome(stream: Disorder, results: Results) -> SlackOutcome:
    """Return latency and error of results."""
    truth, covered = stream.truth, stream.covered
    off = np.array([abs(results.get(wid, (0.0, 0.0))[0] - true) / abs(true) for wid, true in truth.items()])
    waited = [max(0.0, given - covered[wid]) for wid, (_, given) in results.items()]
    # Doubles are given to the last bit or so, whichever way they were added.
    return SlackOutcome(
        float(np.mean(waited)), 100 * float(np.mean(off > 1e-12)), 100 * float(np.mean(np.where(off > 1e-12, off, 0.0)))
    )


def outcomes(streams: Sequence[Disorder], slacks_us: Sequence[int], *kinds: str) -> dict[str, list[list[SlackOutcome]]]:
    """Return an outcome for each slack of each run, for punctuation and each kind of slack."""
    found = {
        f"{kind} slack": [
            [outcome(stream, stream.by_slack(slack_us, consistent=kind == "consistent")) for slack_us in slacks_us]
            for stream in streams
        ]
        for kind in kinds
    }
    return found | {"punctuation": [[outcome(stream, stream.by_punctuation())] * len(slacks_us) for stream in streams]}


def band(seed: int, rows: int) -> Disorder:
    """Make band disorder: delays of up to 3.2 s, mostly short; 25 rows a second, windows of 64 s every 6.4 s."""
    random = np.random.default_rng(seed)
    time_us = np.sort(random.integers(0, rows * 40_000, rows))
    delay_us = np.minimum(random.exponential(0.8 * _S, rows), 3.2 * _S).astype(np.int64)
    order = np.argsort(time_us + delay_us, kind="stable")
    arrival = (time_us + delay_us)[order] / _S
    windows = SlidingWindows(64 * _S, 6_400_000)
    return Disorder(time_us[order], random.integers(40, 1500, rows), arrival, windows, avg("v"))


def block_sorted(seed: int, blocks: int) -> Disorder:
    """Make blocks of 490 s in random order within; a row a second, counted in windows of 600 s every 60 s."""
    random = np.random.default_rng(seed)
    time_us = np.concatenate([(490 * block + random.permutation(490)) * _S for block in range(blocks)])
    n = len(time_us)
    return Disorder(
        time_us, np.ones(n, dtype=np.int64), np.arange(n, dtype=float), SlidingWindows(600 * _S, 60 * _S), count()
    )


def _figure(
    title: str, unit: str, slacks_us: Sequence[int], found: dict[str, list[list[SlackOutcome]]], wrong: bool
) -> Figure:
    """Plot latency and error, and check what must hold."""
    differs: list[str] = []
    latency: list[Curve] = []
    error: list[Curve] = []
    x = [slack_us / _S for slack_us in slacks_us]
    for name, runs in found.items():
        waits = [estimate([run[at].latency for run in runs]) for at in range(len(x))]
        off = [estimate([run[at].wrong if wrong else run[at].error for run in runs]) for at in range(len(x))]
        latency.append(Curve(name, x, waits))
        error.append(Curve(name, x, off))
        waited, missed = [each.mean for each in waits], [each.mean for each in off]
        if name == "punctuation":
            if waited[0] > 0 or missed[0] > 0:
                differs.append(f"punctuation has a latency of {waited[0]} and an error of {missed[0]}, wanted none")
            continue
        if sorted(waited) != waited or waited[-1] == 0:
            differs.append(f"{name}: latency is {waited}, wanted more with more slack")
        if sorted(missed, reverse=True) != missed or missed[0] == 0:
            differs.append(f"{name}: error is {missed}, wanted less with more slack")
        if any(run[at].latency <= 0 and run[at].wrong == 0 for run in runs for at in range(len(x))):
            differs.append(f"{name}: some slack has neither error nor latency, as only punctuation should")
    what = "% of results wrong" if wrong else "mean error, %"
    panels = [
        Panel("Latency", "slack, s", f"after punctuation, {unit}", latency),
        Panel("Error", "slack, s", what, error),
    ]
    return Figure(title, panels, differs)


def figure_6_11(quick: bool) -> Figure:
    """Repeat figure 6-11: band disorder of at most 3.2 s, average over windows of 64 s every 6.4 s."""
    slacks = [int(ms * 1000) for ms in ((0, 640, 3200) if quick else (0, 320, 640, 1280, 2560, 3200))]
    rows, seeds = (6_000, 1) if quick else (15_000, 3)
    streams = [band(seed, rows) for seed in range(seeds)]
    found = outcomes(streams, slacks, "generous", "consistent")
    figure = _figure("Slack and punctuation, band disorder", "s", slacks, found, wrong=False)
    generous, consistent = (curve.means for curve in figure.panels[1].curves[:2])
    differs = list(figure.differs)
    if any(a > b for a, b in zip(generous, consistent, strict=True)):
        differs.append(
            f"generous slack has an error of {generous}, wanted no more than consistent slack's {consistent}"
        )
    if generous[-1] or consistent[-1]:
        differs.append("a slack as large as the disorder has an error")
    return dataclasses.replace(figure, differs=differs)


def figure_6_12(quick: bool) -> Figure:
    """Repeat figure 6-12: block-sorted disorder of 490 s, count over windows of 600 s every 60 s."""
    slacks = [
        round(s * _S) for s in ((0, 218.2, 490, 600) if quick else (0, 54.4, 109.1, 218.2, 327.3, 434.2, 490, 600))
    ]
    blocks, seeds = (12, 1) if quick else (30, 3)
    found = outcomes([block_sorted(seed, blocks) for seed in range(seeds)], slacks, "consistent")
    figure = _figure("Slack and punctuation, block-sorted disorder", "s", slacks, found, wrong=True)
    wrong = figure.panels[1].curves[0].means
    differs = list(figure.differs)
    if wrong[-2] > 0 or min(wrong[:-2]) == 0:
        differs.append(f"wrong answers: {wrong} %, wanted none from a slack of a block on, and some before")
    return dataclasses.replace(figure, differs=differs)


def figure_ais(quick: bool) -> Figure:
    """Repeat it on recorded positions of ships: count of 5 minutes every minute. Rows come up to 15 minutes late."""
    path = DATA / "ais.csv.gz"
    if not path.exists():
        return absent("AIS", path)
    time_us = ais_times()
    ahead = time_us >= int(np.median(time_us)) + 3600 * _S
    slacks_s = (0, 300, 910) if quick else (0, 60, 120, 300, 450, 600, 750, 910)
    stream = _counted(time_us[~ahead], SlidingWindows(300 * _S, 60 * _S))
    figure = _on_recording("Slack and punctuation, ships' positions", stream, slacks_s)
    every = _counted(time_us, stream.windows)
    stray = outcome(every, every.by_slack(910 * _S, consistent=False))
    remark = (
        f"without the {int(ahead.sum())} rows whose times lie hours ahead; with them a slack of 910 s has "
        f"{stray.wrong:.0f} % "
        f"of results wrong, by {stray.error:.0f} % on average, since all that comes after the first of them is late"
    )
    return dataclasses.replace(figure, remarks=[remark])


def figure_dns(quick: bool) -> Figure:
    """Repeat it on recorded DNS queries: count of 10 minutes every minute. Queries come up to 11 minutes late."""
    path = DATA / "dns.log.gz"
    if not path.exists():
        return absent("DNS", path)
    time_us = dns_times()
    slacks_s = (0, 60, 680) if quick else (0, 10, 30, 60, 120, 300, 500, 680)
    return _on_recording(
        "Slack and punctuation, name queries", _counted(time_us, SlidingWindows(600 * _S, 60 * _S)), slacks_s
    )


def ais_times() -> Int64s:
    """Return the times of ships' positions in the order of arrival, in microseconds."""
    table = csv.read_csv(DATA / "ais.csv.gz", convert_options=csv.ConvertOptions(include_columns=["BaseDateTime"]))
    return table.column("BaseDateTime").cast("timestamp[us]").cast("int64").to_numpy()


def dns_times() -> Int64s:
    """Return the times of name queries in the order of arrival, in microseconds."""
    with gzip.open(DATA / "dns.log.gz", "rt") as lines:
        seconds = [float(line[: line.index("\t")]) for line in lines if not line.startswith("#")]
    return np.round(np.array(seconds) * _S).astype(np.int64)


def absent(what: str, path: Path) -> Figure:
    """Return an empty figure, because the recording is missing."""
    return Figure(
        what, [], [], skipped=f"the recording {path.name} lies beside the checkout, in ../shared/data, and is not there"
    )


def _counted(time_us: Int64s, windows: SlidingWindows) -> Disorder:
    n = len(time_us)
    return Disorder(time_us, np.ones(n, dtype=np.int64), np.arange(n, dtype=float), windows, count())


def _on_recording(title: str, stream: Disorder, slacks_s: Sequence[int]) -> Figure:
    """Plot a recording. Recordings have no time of arrival, so latency is in rows."""
    slacks = [s * _S for s in slacks_s]
    found = outcomes([stream], slacks, "generous", "consistent")
    return _figure(title, "rows", slacks, found, wrong=False)
