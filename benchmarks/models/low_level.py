"""Low-level aggregation in a hash table of fixed size (thesis §8.3.3, Fig. 8-6): which packet makes it give how many
aggregates, in order and out of order, and whether a ring buffer holds the packets that come meanwhile.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["Flush", "LowLevelTable", "Server", "backlog"]

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Flush = Literal["in order", "lazy", "slow"]
"""``in order``: results of a window leave before those of the next one, an entry is flushed with each packet, and all
that are left as soon as two groups of the new window collide. ``lazy``: an old aggregate leaves when its place is
needed. ``slow``: one more every so many packets."""

_EMPTY = -1


class LowLevelTable:
    """The hash table of one low-level query, a window of packets at a time.

    Parameters
    ----------
    slot_of : int64 array of length groups
        The entry of each group: two groups of one entry collide.
    slots : int
        Entries.
    flush : Flush
    every : int
        *i*: of slow flush, how many packets come between two aggregates.
    most_windows : int
        *m*: how many windows later an aggregate leaves at the latest, out of order.
    """

    def __init__(self, slot_of: Int64s, slots: int, flush: Flush, every: int = 160, most_windows: int = 2) -> None:
        self._slot_of = slot_of
        self._flush: Flush = flush
        self._every = every
        self._most = most_windows
        self._window_of = np.full(slots, _EMPTY, dtype=np.int64)
        self._number = 0
        self._left = 0

    def window(self, groups: Int64s) -> Int64s:
        """Take a window's packets, and return how many aggregates each of them makes leave.

        Parameters
        ----------
        groups : int64 array of length packets
            The group of each packet, in the order of arrival.
        """
        n, slots = len(groups), len(self._window_of)
        slot = self._slot_of[groups]
        order = np.argsort(slot, kind="stable")
        same = slot[order][1:] == slot[order][:-1]
        others = order[1:][same & (groups[order][1:] != groups[order][:-1])]
        out = np.zeros(n + 1, dtype=np.int64)
        np.add.at(out, others, 1)
        first = np.full(slots, n, dtype=np.int64)  # the first packet of each entry; n for none
        begins = np.concatenate([[True], ~same])
        first[slot[order][begins]] = order[begins]
        out[0] += self._left
        self._left = 0
        if self._flush != "in order":
            due = (self._window_of != _EMPTY) & (self._window_of < self._number - self._most)
            out[0] += np.count_nonzero(due)
            self._window_of[due] = _EMPTY
        old = np.flatnonzero(self._window_of != _EMPTY)
        leaves = first[old]
        if self._flush == "in order":
            leaves = np.minimum(np.minimum(leaves, old), int(others.min(initial=n)))
        elif self._flush == "slow":
            self._one_every(leaves, n)
        np.add.at(out, leaves, 1)
        self._window_of[old[leaves < n]] = _EMPTY
        if self._flush == "in order":
            self._left = int(out[n])
            self._window_of[:] = _EMPTY
        self._window_of[first < n] = self._number
        self._number += 1
        return out[:n]

    def _one_every(self, leaves: Int64s, n: int) -> None:
        """Let the next old aggregate in the table go after each `every` packets, unless it has left by then."""
        at = 0
        for packet in range(self._every - 1, n, self._every):
            while at < len(leaves) and leaves[at] <= packet:
                at += 1
            if at == len(leaves):
                return
            leaves[at] = packet
            at += 1


@dataclasses.dataclass(frozen=True)
class Server:
    """What the low-level query takes.

    Attributes
    ----------
    packet_s, output_s : float
        Processor time of a packet, and of an aggregate that leaves.
    ring : float
        Packets that the ring buffer holds.
    """

    packet_s: float
    output_s: float
    ring: float


def backlog(server: Server, outputs: Int64s, rate: float) -> tuple[int, float]:
    """Return the most packets that wait at any time, and the share of the time in which the processor is busy.

    Parameters
    ----------
    server
    outputs : int64 array of length packets
        How many aggregates each packet makes leave.
    rate : float
        Packets a second, which come evenly.
    """
    n = len(outputs)
    service: Floats = server.packet_s + server.output_s * outputs
    worked = np.cumsum(service)
    come = np.arange(n) / rate
    # A packet is done when all before it are, or when it has come, and it has been served (Lindley).
    done = worked + np.maximum.accumulate(come - (worked - service))
    waiting = np.arange(1, n + 1) - np.searchsorted(done, come, "right")
    return int(waiting.max(initial=0)), float(worked[-1] / max(done[-1], n / rate))
