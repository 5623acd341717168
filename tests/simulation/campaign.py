"""Many scenarios, each in a process that is forked from this one, which has imported everything: which fail, how fast
they go, and what a failure is, made small.
"""

import dataclasses
import multiprocessing
import os
import re
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

from .scenario import Scenario, shrunk

SHARES = {
    "latest": 12, "restore": 7, "two_writes": 6, "windows": 8, "arrival": 5, "ends": 6, "over": 7, "queue": 7,
    "ordered": 6, "joins": 7, "early_joins": 4, "ordered_joins": 4, "limited_joins": 4, "table_joins": 4,
    "newest_joins": 4, "cut": 4, "hosted": 5,
}  # fmt: skip
"""How many of a hundred scenarios have each profile."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """The last line of a scenario's error, and an account of all of it, the smaller scenario included."""

    error: str
    account: str


@dataclasses.dataclass
class Campaign:
    """What came of some scenarios."""

    failures: list[Failure] = dataclasses.field(default_factory=list[Failure])
    ran: Counter[str] = dataclasses.field(default_factory=Counter[str])
    seconds: float = 0.0


def numbered(first: int, count: int, profile: str | None = None) -> Iterator[tuple[str, int]]:
    """Seeds, and the profile of each: the one that is given, or all, mixed by their shares."""
    order = [name for at in range(max(SHARES.values())) for name, share in SHARES.items() if at < share]
    for number in range(first, first + count):
        yield profile or order[number % len(order)], number


def fails(scenario: Scenario) -> str | None:
    """Run a scenario in this process, and return why it fails."""
    from . import running

    try:
        running.run(scenario)
    except Exception:
        return traceback.format_exc(limit=-6)
    return None


def _kind(error: str | None) -> str:
    """What an error says before it comes to particulars."""
    line = (error or "").strip().splitlines()[-1:] or [""]
    name, _, rest = line[0].partition(": ")
    return name + re.split(r"[^a-z ,]", rest)[0]


def failure_of(scenario: Scenario, error: str, shrink_s: float, defect: str | None = None) -> Failure:
    """A failure, after it was made small for so many seconds."""
    small = scenario
    if shrink_s:
        small = shrunk(scenario, lambda each: _kind(fails(each)) == _kind(error), shrink_s)
    again = f"python -m tests.simulation --profile {scenario.profile} --seed {scenario.seed}"
    again += f" --defect {defect}" if defect else ""
    parts = [f"{again}\n\n{error}", small.described(), "as JSON: " + small.to_json()]
    return Failure(error.strip().splitlines()[-1], "\n".join(parts))


def _work(profile: str, seed: int, shrink_s: float, defect: str | None) -> Failure | None:
    from .profiles import made

    scenario = made(profile, seed)
    error = fails(scenario)
    return None if error is None else failure_of(scenario, error, shrink_s, defect)


def forked(workers: int, begin: Callable[..., None] | None = None, *given: Any) -> ProcessPoolExecutor:
    """Processes that are forked from this one, which must not have computed anything: threads are not forked."""
    fork = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(workers, mp_context=fork, initializer=begin, initargs=given)


def answers(profile: str, seed: int) -> dict[str, Any]:
    """Run a scenario in this process, and return what comes out, and which scenario it is."""
    from . import profiles, running

    scenario = profiles.made(profile, seed)
    drawn = zlib.crc32(scenario.to_json().encode())
    try:
        return {"scenario": drawn, **running.run(scenario)}
    except Exception:
        return {"scenario": drawn, "failed": traceback.format_exc(limit=-6)}


def run(
    scenarios: Iterator[tuple[str, int]],
    workers: int = os.cpu_count() or 1,
    *,
    defect: str | None = None,
    shrink_s: float = 20.0,
    most_failures: int = 1,
    until_s: float = float("inf"),
) -> Campaign:
    """Run scenarios until there are none, so many have failed, or the time is over."""
    from .defects import DEFECTS

    found, began = Campaign(), time.monotonic()
    waiting: set[Future[Failure | None]] = set()
    with forked(workers, DEFECTS[defect].put_back if defect else None) as pool:
        while True:
            while len(waiting) < workers and len(found.failures) < most_failures and time.monotonic() < began + until_s:
                following = next(scenarios, None)
                if following is None:
                    break
                found.ran[following[0]] += 1
                waiting.add(pool.submit(_work, *following, shrink_s, defect))
            if not waiting:
                break
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            found.failures += [failure for each in done if (failure := each.result()) is not None]
    found.seconds = time.monotonic() - began
    return found
