"""The policies ``append`` and ``shed``, simulated without a queue."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from .simulation import Arrivals, Perceived, Server, perceived

__all__ = ["InOrderOutcome", "simulate_in_order"]

Int64s = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class InOrderOutcome:
    """A simulated run; the attributes are those of :class:`~upstream.operators.capacity.simulation.Outcome`."""

    application: Perceived
    halfway: float
    delivered: int
    pending: int
    busy: float


def simulate_in_order(
    arrivals: Arrivals, server: Server, end_us: int, *, drop: float = 0.0, seed: int = 0
) -> InOrderOutcome:
    """Run one server from time 0 to `end_us`, with results that equal those of ``simulate``.

    The order of service is that of arrival, so a batch is a slice of the arrivals. `drop` is the share of arrivals that
    are dropped at random (AQ-RLS).
    """
    came = int(np.searchsorted(arrivals.at_us, end_us, side="right"))
    at, key = arrivals.at_us[:came], arrivals.key[:came]
    stays = np.random.default_rng(seed).random(came) >= drop if drop else np.ones(came, dtype=np.bool_)
    first, dropped = _covering(at, key, stays)
    at, key = at[stays], key[stays]
    commit, busy = _commits(at, server, end_us)
    served = len(commit)
    # What was dropped since its key's last admitted row keeps the key stale, as what waits does.
    waiting = np.concatenate([key[served:], dropped[0]]), np.concatenate([first[served:], dropped[1]])
    results = key[:served], first[:served], commit
    return InOrderOutcome(
        application=perceived(arrivals.keys, end_us, results, waiting),
        halfway=perceived(arrivals.keys, end_us // 2, results, waiting).mean,
        delivered=int(np.count_nonzero(commit <= end_us)),
        pending=len(key) - served,
        busy=busy / end_us,
    )


def _covering(at: Int64s, key: Int64s, stays: npt.NDArray[np.bool_]) -> tuple[Int64s, tuple[Int64s, Int64s]]:
    """Return the oldest arrival of each admitted row's run, and key and arrival of runs that no admitted row ends."""
    if stays.all():
        return at, (key[:0], at[:0])
    order = np.argsort(key, kind="stable")
    by_key, kept = key[order], stays[order]
    # A run is some dropped rows of a key and the admitted one that ends it, or dropped rows at the key's end.
    begins = np.concatenate([[True], (by_key[1:] != by_key[:-1]) | kept[:-1]])
    run = np.flatnonzero(begins)
    last = np.append(run[1:], len(order)) - 1
    ends_kept = kept[last]
    first = np.zeros(len(at), dtype=np.int64)
    first[order[last[ends_kept]]] = at[order[run[ends_kept]]]
    alone = run[~ends_kept]
    return first[stays], (by_key[alone], at[order[alone]])


def _commits(at: Int64s, server: Server, end_us: int) -> tuple[Int64s, int]:
    """Return the commit times of the rows that are served before the end, and the server's working time until then."""
    sizes: list[int] = []
    commits: list[int] = []
    now = taken = busy = 0
    rows = len(at)
    while taken < rows:
        stop = int(np.searchsorted(at, now, side="right"))
        if stop <= taken:
            now = int(at[taken])
            continue
        if now >= end_us:
            break
        size = stop - taken if server.budget is None else min(server.budget, stop - taken)
        commit = now + server.batch_us(size)
        busy += min(commit, end_us) - now
        sizes.append(size)
        commits.append(commit)
        taken, now = taken + size, commit
    return np.repeat(np.array(commits, dtype=np.int64), sizes), busy
