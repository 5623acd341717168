"""The invariant of progress: no promise of a feed that has shown a row lies beyond a row still to be applied."""

import dataclasses
import tempfile
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kit.memory_connector import MemoryConnector

from upstream.core.watermark.bounds import AFTER_ALL
from upstream.datasource.task import Reading
from upstream.operators.runtime.feeds import FeedBounds

from .driven_feeds import BASE, SCHEMA, DearConnector, Driver, S

DELAY = 4
POLICIES = ["ordered", "bounded", "displaced", "embedded", "arrival", "none", "adaptive"]


class Pipeline(Driver):
    """A source and the minimum of what its feeds promise."""

    def __init__(self, folder: str, *, dear: bool = False, **changes: Any) -> None:
        given_options: dict[str, Any] = {
            "progress_delay_us": DELAY * S, "progress_displacement": 3, "confirmations": 3,
            "checkpoint_location": folder, "idle_after_us": 10 * S, "ets_delay_us": DELAY * S,
            "dead_letters": folder + "/dead", **changes,
        }  # fmt: skip
        super().__init__(*"abc", connector=DearConnector if dear else MemoryConnector, **given_options)
        self.bounds = FeedBounds()
        # After each batch the low-watermark of an operator, how much of each feed was applied, and which have rows.
        self.done: list[tuple[int | None, dict[str, int], set[str]]] = []
        self.stamps: dict[str, list[int]] = {feed: [] for feed in "abc"}

    def batch(self, limit: int | None = None, *, frozen: bool = False) -> bool:
        """Plan a batch and read it; whether there was one."""
        tasks = self.tasks(limit, frozen=frozen)
        if tasks is None:
            return False
        reading = Reading(self.options, self.shape, self.connector, self.options.dead_letters or "")
        for task in tasks:
            for rows in reading.read(task):
                for row in rows.to_pylist():
                    if not row["_upstream"]["punctuation"]:
                        at = row[self.options.time]
                        self.stamps[row["_upstream"]["source"]].append(
                            at if isinstance(at, int) else round(at.timestamp() * S)
                        )
            self.bounds.hear(task.punctuation.keys(), task.punctuation.values())
        applied = {feed: int(self.offset["position"].get(feed, 0)) for feed in self.connector.tables}
        seen = {feed for feed, table in self.connector.tables.items() if table.num_rows}
        self.done.append((self.bounds.low_watermark, applied, seen))
        return True

    def until_quiet(self, limit: int | None = None, *, frozen: bool = False) -> None:
        while self.batch(limit, frozen=frozen):
            pass

    def check(self, times: Callable[[str], list[int]]) -> None:
        """The invariant, over all rows that were ever sent."""
        for number, (low_us, applied, shown) in enumerate(self.done):
            for feed in shown:
                rest = times(feed)[applied[feed] :]
                if low_us is not None and rest:
                    assert low_us <= min(rest), f"batch {number} promises {low_us} beyond a row of {feed}"


def time_of(policy: str, idle: str, now: int, behind: int, sent: list[int]) -> int:
    """A row's time that keeps what the policy says of rows."""
    if policy == "bounded":
        return now - behind * S
    if policy == "displaced" and idle == "wait":
        return max([now - behind * S, *sent[:-3]])
    return now


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.lists(st.integers(0, DELAY), max_size=6),
        st.integers(0, 15),
        st.one_of(st.none(), st.integers(1, 6)),
    ),
    min_size=1,
    max_size=12,
)
WAITING = [("a", [0] * 6, 0, 1), ("b", [0], 0, 1), ("a", [0], 15, 5)]


@settings(max_examples=150)
@given(
    steps=STEPS,
    policy=st.sampled_from(POLICIES),
    idle=st.sampled_from(["wait", "advance", "ets"]),
    confirmations=st.sampled_from([1, 3]),
    dear=st.booleans(),
)
# A feed whose first row a limit keeps waiting holds the others back.
@example(steps=WAITING, policy="bounded", idle="wait", confirmations=1, dear=False)
# A feed may have punctuation of its own and no row.
@example(steps=[("a", [DELAY], 0, None)], policy="embedded", idle="wait", confirmations=1, dear=False)
def test_no_promise_lies_beyond_a_row_that_is_still_to_be_applied(steps, policy, idle, confirmations, dear):
    if policy == "none":
        idle = "wait"
    with tempfile.TemporaryDirectory() as folder:
        pipe = Pipeline(folder, dear=dear, progress=policy, idle=idle, confirmations=confirmations)
        sent: dict[str, list[int]] = {feed: [] for feed in "abc"}
        for feed, rows, seconds, limit in steps:
            pipe.now += seconds * S
            for behind in rows:
                time = time_of(policy, idle, pipe.now, behind, sent[feed])
                mark = policy == "embedded" and behind == DELAY
                sent[feed].append(time)
                pipe.send(feed, time, key=None if mark else "x")
            if idle == "ets":
                pipe.holds(pipe.now // (5 * S) * 5 * S)
            pipe.batch(limit)
        pipe.until_quiet()
        if policy == "arrival":
            pipe.check(lambda feed: pipe.stamps[feed])
        else:
            pipe.check(lambda feed: sent[feed])
        pipe.connector.ended = frozenset("abc")
        pipe.until_quiet()
        # Every feed that has shown a row, or punctuation of its own, has ended. By the clock a feed moves before its
        # first row.
        held = {feed for feed in sent if sent[feed] or (policy == "arrival" and pipe.batches)}
        assert pipe.bounds.bounds == ({} if policy == "none" else dict.fromkeys(held, AFTER_ALL))


def test_a_feed_of_which_nothing_can_be_read_as_a_time_has_not_begun(tmp_path):
    """None of its rows arrives, so there is nothing to wait for, whether the driver or a task found that out."""
    pipe = Pipeline(str(tmp_path), dear=True, progress="ordered", confirmations=1)
    pipe.connector.tables["b"] = pa.table([["y"], [None]], schema=SCHEMA)
    pipe.send("a", BASE)
    pipe.until_quiet()
    pipe.send("a", BASE + S)
    pipe.until_quiet()
    assert pipe.bounds.low_watermark == BASE + S


@pytest.mark.parametrize("idle", ["advance", "ets"])
def test_the_idle_rule_lets_the_others_go_on_without_a_feed_that_never_had_a_bound(tmp_path, idle):
    pipe = Pipeline(str(tmp_path), progress="ordered", confirmations=5, idle=idle)
    pipe.send("a", *[BASE] * 9)
    pipe.send("b", BASE)
    pipe.batch()
    assert pipe.bounds.low_watermark is None
    pipe.holds(BASE + 5 * S)
    pipe.now += 10 * S
    pipe.send("a", BASE + 10 * S)
    pipe.batch()
    assert pipe.bounds.low_watermark == (BASE + 10 * S if idle == "advance" else BASE + 6 * S)


def test_the_clock_promises_no_more_than_the_rows_that_wait(tmp_path):
    pipe = Pipeline(str(tmp_path), progress="arrival")
    pipe.send("a", *[0] * 10)
    pipe.batch(limit=4)
    first = pipe.now
    assert pipe.bounds.low_watermark == first
    pipe.now += 60 * S
    pipe.send("a", 0)
    pipe.batch(limit=4)
    assert pipe.bounds.low_watermark == first, "two of the first look wait"
    pipe.now += 60 * S
    pipe.batch(limit=2)
    assert pipe.bounds.low_watermark == first + 60 * S, "one of the second look waits"
    pipe.batch(limit=4)
    assert pipe.stamps["a"] == [first] * 10 + [first + 60 * S]
    assert pipe.bounds.low_watermark == pipe.now


def test_no_stamp_is_below_what_was_promised_whatever_clock_a_connector_goes_by(tmp_path):
    """Another machine's clock, by which a table's commits are stamped, may be behind."""
    pipe = Pipeline(str(tmp_path), progress="arrival")
    pipe.send("a", 0)
    pipe.batch()
    pipe.connector.seen["a"].append((2, BASE - 30 * S))
    pipe.now += S
    pipe.send("a", 0)
    pipe.batch()
    assert pipe.stamps["a"] == [BASE, BASE]


@pytest.mark.parametrize("dear", [False, True])
def test_an_ended_feed_lets_the_others_go_on_and_at_the_end_of_all_everything_is_complete(tmp_path, dear):
    pipe = Pipeline(str(tmp_path), dear=dear, progress="bounded", confirmations=1)
    del pipe.connector.tables["c"]
    pipe.send("a", BASE)
    pipe.send("b", BASE + 50 * S)
    pipe.connector.ended = frozenset("a")
    pipe.until_quiet()
    assert pipe.bounds.low_watermark == BASE + (50 - DELAY) * S
    pipe.connector.ended = frozenset("ab")
    pipe.until_quiet()
    assert pipe.bounds.low_watermark == AFTER_ALL


@pytest.mark.parametrize("begun", [False, True])
def test_after_a_feed_has_ended_no_row_of_the_other_is_late(tmp_path, begun):
    """A partition that has not begun has room, and one that is silent follows as far as the ended one has come."""
    pipe = Pipeline(str(tmp_path), progress="ordered", confirmations=1, idle="advance" if begun else "wait")
    del pipe.connector.tables["c"]
    pipe.send("a", BASE)
    if begun:
        pipe.send("b", BASE)
    pipe.batch()
    pipe.now += 20 * S
    pipe.send("a", BASE + 20 * S)
    pipe.connector.ended = frozenset("a")
    pipe.until_quiet()
    assert pipe.bounds.low_watermark == BASE + 20 * S + begun, "a begun feed follows beyond the last row"
    pipe.send("b", BASE + 21 * S)
    pipe.until_quiet()
    assert pipe.offset["progress"]["b"]["late"] == 0
    assert pipe.bounds.bounds == {"a": AFTER_ALL, "b": BASE + 21 * S}


@pytest.mark.parametrize("dear", [False, True])
@pytest.mark.parametrize(("policy", "promised"), [("ordered", 9), ("bounded", 9 - DELAY), ("displaced", 6)])
def test_an_ended_feed_promises_no_more_than_its_policy_while_another_may_begin(tmp_path, policy, promised, dear):
    """The first row of the other may be as far behind as the policy allows."""
    pipe = Pipeline(str(tmp_path), dear=dear, progress=policy, confirmations=1)
    del pipe.connector.tables["c"]
    pipe.send("a", *[BASE + n * S for n in range(10)])
    pipe.connector.ended = frozenset("a")
    pipe.until_quiet()
    assert pipe.bounds.low_watermark == BASE + promised * S
    pipe.send("b", BASE + promised * S)
    pipe.until_quiet()
    pipe.check(lambda feed: [row["us"] for row in pipe.connector.tables[feed].to_pylist()])
    assert pipe.offset["progress"]["b"]["late"] == 0
    pipe.connector.ended = frozenset("ab")
    pipe.until_quiet()
    assert pipe.bounds.low_watermark == AFTER_ALL


@pytest.mark.parametrize("idle", ["wait", "advance"])
def test_the_idle_rule_ends_the_wait_for_a_feed_that_stays_empty(tmp_path, idle):
    """Nobody else has rows: the rule itself brings the batch, one, and none in a run that waits for no clock."""
    pipe = Pipeline(str(tmp_path), progress="ordered", confirmations=1, idle=idle)
    pipe.send("a", BASE)
    pipe.send("b", BASE - 5 * S)
    pipe.connector.ended = frozenset("ab")
    pipe.until_quiet()
    pipe.now += 10 * S - 1
    assert not pipe.batch()
    pipe.now += 1
    assert not pipe.batch(frozen=True)
    assert pipe.batch() == (idle == "advance")
    assert pipe.bounds.low_watermark == (AFTER_ALL if idle == "advance" else BASE - 5 * S)
    assert not pipe.batch()


def test_an_ended_feed_moves_on_demand_while_another_may_begin(tmp_path):
    pipe = Pipeline(str(tmp_path), progress="ordered", confirmations=1, idle="ets")
    pipe.send("a", BASE)
    pipe.connector.ended = frozenset("a")
    pipe.until_quiet()
    pipe.holds(BASE + 5 * S)
    pipe.now += 8 * S
    assert not pipe.batch(), "its clock, less the delay"
    pipe.now += 1 * S
    assert pipe.batch()
    assert pipe.bounds.low_watermark == BASE + 5 * S
    assert not pipe.batch()


def test_an_ended_feed_closes_when_the_one_that_has_not_begun_is_no_longer_read(tmp_path):
    pipe = Pipeline(str(tmp_path), progress="ordered", confirmations=1)
    del pipe.connector.tables["c"]
    pipe.send("a", BASE)
    pipe.connector.ended = frozenset("a")
    pipe.until_quiet()
    assert pipe.bounds.low_watermark == BASE
    del pipe.connector.tables["b"]
    pipe.until_quiet()
    assert pipe.bounds.low_watermark == AFTER_ALL


@pytest.mark.parametrize("dear", [False, True])
@pytest.mark.parametrize("policy", ["ordered", "bounded", "displaced", "arrival", "adaptive"])
def test_a_run_with_what_is_there_closes_its_feeds_only_if_the_user_asks_for_it(tmp_path, policy, dear):
    for on_end in ("keep", "close"):
        pipe = Pipeline(str(tmp_path / on_end), dear=dear, progress=policy, on_end=on_end)
        pipe.send("a", *[BASE + n * S for n in range(10)])
        pipe.send("b", BASE)
        while pipe.batch(4, frozen=True):
            behind = sum(pipe.done[-1][1].values()) < 11
            assert not behind or pipe.bounds.low_watermark != AFTER_ALL, "closed before the last row"
        assert (pipe.bounds.low_watermark == AFTER_ALL) == (on_end == "close")
        assert not pipe.batch(), "there is nothing to do"
        # A later run can close what is there already.
        pipe.options = dataclasses.replace(pipe.options, on_end="close")
        pipe.until_quiet(frozen=True)
        assert pipe.bounds.low_watermark == AFTER_ALL


def test_rows_after_the_end_are_late_counted_and_said(tmp_path, caplog):
    pipe = Pipeline(str(tmp_path), progress="ordered", confirmations=1, on_end="close")
    pipe.send("a", BASE)
    pipe.until_quiet(frozen=True)
    pipe.send("a", BASE + 100 * S, BASE - S)
    pipe.until_quiet(frozen=True)
    state = pipe.offset["progress"]["a"]
    assert (state["received"], state["late"], state["late_idle"], state["bound"]) == (3, 2, 0, AFTER_ALL)
    assert len(pipe.stamps["a"]) == 3, "they are applied all the same"
    assert "rows have come after the end of a" in caplog.text


@pytest.mark.parametrize("policy", ["ordered", "arrival"])
def test_a_feed_that_is_no_longer_read_holds_nobody_back_and_can_come_back(tmp_path, policy):
    pipe = Pipeline(str(tmp_path), progress=policy, confirmations=1)
    pipe.send("a", BASE)
    pipe.send("b", BASE - 5 * S)
    pipe.batch()
    held = pipe.connector.tables.pop("b")
    if policy == "ordered":
        pipe.until_quiet()
        assert pipe.bounds.low_watermark == BASE, "before the others have a row"
    pipe.send("a", BASE + 60 * S)
    pipe.now += 60 * S
    pipe.batch()
    assert pipe.bounds.low_watermark == BASE + 60 * S
    pipe.connector.tables["b"] = held
    pipe.send("b", BASE + 61 * S)
    pipe.now += S
    pipe.batch()
    assert pipe.offset["progress"]["b"]["late"] == 0
    assert len(pipe.stamps["b"]) == 2
