"""What the simulation has in the place of the machine: its clock, the names it makes up, deaths, Spark's word on the
running batch, and Kafka's client.

Import this module before any other of the simulation: it replaces the clock before others take it by name.
"""

import logging
import random
import sys
import threading
import types
import uuid
from collections.abc import Callable
from typing import Any

import upstream.conf.units as _clock

START_US = 1_700_000_000_000_000


class Killed(BaseException):
    """Ends the thread of a process that has died, once nothing of it can matter any more."""


class Machine:
    """One simulated machine at a time."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, seed: int) -> None:
        self.now_us = START_US
        self.monotonic_s = 1_000.0
        self.batch = -1
        self.query_id = "query"
        self._ids = random.Random(seed)
        self._waits: list[threading.Event] = []
        self.hook: Callable[[str], None] | None = None

    def pass_time(self, us: int) -> None:
        """Let the clock jump; what counts seconds never goes back."""
        self.now_us += us
        self.monotonic_s += max(us, 0) / 1e6

    def reached(self, step: Any) -> None:
        """A numbered step, of the product or of the simulation, is done."""
        if self.hook is not None:
            self.hook(getattr(step, "name", step))

    def dies_at(self, step: str, times: int, run: Callable[[], None]) -> bool:
        """Run something in a process that dies when it has reached a step so many times. Whether it died.

        What dies does nothing more: no handler of an exception runs, as after kill -9. Its thread stays where it is
        until :meth:`end`.
        """
        left, dead, done, never = times, False, threading.Event(), threading.Event()
        failed: list[BaseException] = []

        def hook(name: str) -> None:
            nonlocal left, dead
            if threading.current_thread() is not thread or name != step:
                return
            left -= 1
            if left == 0:
                dead = True
                done.set()
                never.wait()
                raise Killed

        def body() -> None:
            try:
                run()
            except Killed:
                return
            except BaseException as error:
                failed.append(error)
            done.set()

        thread = threading.Thread(target=body, daemon=True)
        self.hook = hook
        thread.start()
        done.wait()
        self.hook = None
        if dead:
            self._waits.append(never)
        elif failed:
            raise failed[0]
        return dead

    def end(self) -> None:
        """Let the threads of the dead go. Their folders are gone by now."""
        for never in self._waits:
            never.set()
        self._waits = []

    def uuid4(self) -> uuid.UUID:
        """A name as random as the seed."""
        return uuid.UUID(int=self._ids.getrandbits(128), version=4)


MACHINE = Machine()


def now_us() -> int:
    """The simulated clock. It has a name, since what is pickled names it."""
    return MACHINE.now_us


_clock.now_us = now_us


def check_clocks() -> None:
    """Refuse a process in which some have the true clock: it pickles functions that are not what their names mean."""
    ours = [(name, module) for name, module in list(sys.modules.items()) if name.startswith("upstream.")]
    late = [name for name, module in ours if getattr(module, "now_us", now_us) is not now_us]
    assert not late, f"the machine came too late: {', '.join(late)} have the true clock"


check_clocks()


class Context:
    """What Spark tells tasks, and the thread of a `foreachBatch`."""

    @staticmethod
    def getLocalProperty(name: str) -> str | None:
        return {"streaming.sql.batchId": str(MACHINE.batch), "sql.streaming.queryId": MACHINE.query_id}.get(name)

    @staticmethod
    def partitionId() -> int:
        return 0


def install() -> None:
    """Put the machine in its place, once in a process."""
    import time

    import confluent_kafka
    import confluent_kafka.admin
    from pyspark import TaskContext

    from upstream.core.feedback import offsets as kept_feeds
    from upstream.datasource.connectors.files import positions as files_positions
    from upstream.datasource.connectors.kafka import client, positions
    from upstream.datasource.connectors.kafka import connector as consuming
    from upstream.datasource.connectors.kafka.options import KafkaOptions
    from upstream.hosting import command_source
    from upstream.operators.tables import versions
    from upstream.sink.spec import steps

    from . import broker

    logging.getLogger("upstream").setLevel(logging.ERROR)
    steps.reached = MACHINE.reached
    # All that is at rest is kept beside the offsets at once: here are too few feeds for it to happen otherwise.
    kept_feeds._OTHERS = files_positions._OTHERS = 0
    uuid.uuid4 = MACHINE.uuid4  # type: ignore[assignment]
    TaskContext.get = staticmethod(Context)  # type: ignore[assignment]

    def sleep(seconds: float) -> None:
        MACHINE.monotonic_s += seconds

    slow = types.SimpleNamespace(monotonic=lambda: MACHINE.monotonic_s, sleep=sleep, time=time.time)
    for module in (client, command_source, consuming, positions, versions):
        module.time = slow  # type: ignore[attr-defined]
    positions.Positions.__init__.__defaults__ = (lambda: MACHINE.monotonic_s,)
    confluent_kafka.Consumer = broker.Consumer  # type: ignore[misc, assignment]
    confluent_kafka.admin.AdminClient = broker.AdminClient  # type: ignore[misc, assignment]
    KafkaOptions.check_answers = lambda _: None  # type: ignore[method-assign] no port listens for the broker here
    check_clocks()


def forget_process() -> None:
    """What a process has in memory is gone with it."""
    from upstream.sink.commit import batch_name, lease
    from upstream.sink.maintenance import runner as upkeep
    from upstream.sink.table import table
    from upstream.storage import object_store

    for memory in (table._cache, upkeep._known, upkeep._last, object_store._tried, lease._keepers):
        memory.clear()
    batch_name._CALLS = batch_name.Calls()
