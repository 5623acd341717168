"""The hash table of low-level aggregation, whole windows at once, against the thesis' procedure packet by packet."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from the_benchmarks.models.low_level import Flush, LowLevelTable, Server, backlog


class PacketByPacket:
    """Fig. 8-6 of the thesis as it is printed, and its two forms out of order."""

    def __init__(self, slot_of: list[int], slots: int, flush: Flush, every: int, most: int) -> None:
        self.slot_of, self.flush, self.every, self.most = slot_of, flush, every, most
        self.table: list[tuple[int, int] | None] = [None] * slots  # window, group
        self.window = -1

    def output(self, slot: int) -> int:
        self.table[slot] = None
        return 1

    def flush_old(self, before: int) -> int:
        return sum(self.output(slot) for slot, held in enumerate(self.table) if held is not None and held[0] < before)

    def take(self, groups: list[int]) -> list[int]:
        self.window += 1
        found: list[int] = []
        at, gone = 0, 0
        for packet, group in enumerate(groups):
            out = 0
            if packet == 0:  # the start of a new window extent
                out += self.flush_old(self.window - 1 if self.flush == "in order" else self.window - self.most)
            if self.flush == "in order" and at < len(self.table):  # SlowFlush()
                held = self.table[at]
                if held is not None and held[0] < self.window:
                    out += self.output(at)
                at += 1
            slot = self.slot_of[group]
            held = self.table[slot]
            if held is not None and held[0] < self.window:  # old
                out += self.output(slot)
            elif held is not None and held[1] != group:  # new, of another group
                if self.flush == "in order":
                    out += self.flush_old(self.window)
                out += self.output(slot)
            self.table[slot] = (self.window, group)
            if self.flush == "slow" and packet % self.every == self.every - 1:
                while gone < len(self.table):
                    held = self.table[gone]
                    gone += 1
                    if held is not None and held[0] < self.window:
                        out += self.output(gone - 1)
                        break
            found.append(out)
        return found


@settings(max_examples=300, deadline=None)
@given(
    flush=st.sampled_from(["in order", "lazy", "slow"]),
    slots=st.integers(1, 12),
    windows=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=25), min_size=1, max_size=6),
    every=st.integers(1, 5),
    most=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_each_packet_makes_as_many_aggregates_leave(flush, slots, windows, every, most, seed):
    slot_of = np.random.default_rng(seed).integers(0, slots, 10)
    table = LowLevelTable(slot_of, slots, flush, every, most)
    literal = PacketByPacket(slot_of.tolist(), slots, flush, every, most)
    for groups in windows:
        assert table.window(np.array(groups)).tolist() == literal.take(groups)


@pytest.mark.parametrize(
    ("rate", "outputs", "most", "busy"),
    [
        (1.0, [0, 0, 0, 0], 1, 0.5),  # each is done before the next comes
        (1.0, [0, 5, 0, 0, 0, 0], 3, 5.5 / 6),  # one takes 3 s, so three wait then
        (4.0, [0, 0, 0, 0], 3, 1.0),
    ],
)
def test_what_waits_while_aggregates_leave(rate, outputs, most, busy):
    waiting, share = backlog(Server(0.5, 0.5, 99), np.array(outputs), rate)
    assert waiting == most
    assert share == pytest.approx(busy)
