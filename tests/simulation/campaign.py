"""Many scenarios, on some processes: which fail, how fast they go, and what a failure is, made small."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from .scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]

SHARES = {
    "latest": 12, "restore": 7, "two_writes": 6, "windows": 8, "heartbeat": 5, "ends": 6, "over": 7, "queue": 7,
    "ordered": 6, "joins": 7, "early_joins": 4, "ordered_joins": 4, "limited_joins": 4, "table_joins": 4,
    "newest_joins": 4, "cut": 4, "hosted": 5,
}  # fmt: skip
"""How many of a hundred scenarios have each profile."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """A scenario that fails, and how.

    Attributes
    ----------
    profile, seed
        From which it was made.
    error : str
        Its last line.
    account : str
        All of it, the smaller scenario included.
    """

    profile: str
    seed: int
    error: str
    account: str


def numbered(first: int, count: int) -> Iterator[tuple[str, int]]:
    """Profiles and seeds, mixed by their shares."""
    order = [name for at in range(max(SHARES.values())) for name, share in SHARES.items() if at < share]
    for number in range(first, first + count):
        yield order[number % len(order)], number


def fails(scenario: Scenario) -> str | None:
    """Why a scenario fails; None if it does not. Runs it here."""
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


def failure_of(scenario: Scenario, error: str, shrink_s: float) -> Failure:
    """A failure, after it was made small."""
    from .shrinking import shrunk

    line = error.strip().splitlines()[-1]
    small = scenario
    if shrink_s:
        small = shrunk(scenario, lambda each: _kind(fails(each)) == _kind(error), shrink_s)
    again = f"python -m tests.simulation --profile {scenario.profile} --seed {scenario.seed}"
    defect = os.environ.get("UPSTREAM_DEFECT")
    again += f" --defect {defect}" if defect else ""
    parts = [f"{again}\n\n{error}", small.described(), "as JSON: " + small.to_json()]
    return Failure(scenario.profile, scenario.seed, line, "\n".join(parts))


def work(lines: Iterator[str], shrink_s: float) -> Iterator[str]:
    """What a worker does: a profile and a seed in each line, and what came of it back."""
    from .profiles import made

    for line in lines:
        profile, seed = json.loads(line)
        scenario = made(profile, seed)
        error = fails(scenario)
        failure = None if error is None else dataclasses.asdict(failure_of(scenario, error, shrink_s))
        yield json.dumps(failure)


class Campaign:
    """Workers that run scenarios.

    Parameters
    ----------
    workers
        Processes.
    defect
        That is put back in them.
    shrink_s
        How long a failure is made smaller.
    """

    def __init__(self, workers: int = 2, defect: str | None = None, shrink_s: float = 20.0) -> None:
        given = [sys.executable, "-m", "tests.simulation", "--work", "--shrink", str(shrink_s)]
        given += ["--defect", defect] if defect else []
        quiet = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "TOKIO_WORKER_THREADS": "1"}
        self._workers = [
            subprocess.Popen(given, cwd=ROOT, env=quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(workers)
        ]
        self.ran: Counter[str] = Counter()
        self.seconds = 0.0

    def run(
        self, scenarios: Iterator[tuple[str, int]], most_failures: int = 1, until_s: float = float("inf")
    ) -> Sequence[Failure]:
        """Run scenarios until there are none, so many have failed, or the time is over."""
        import selectors

        found: list[Failure] = []
        began = time.monotonic()
        with selectors.DefaultSelector() as ready:
            busy = 0
            for worker in self._workers:
                ready.register(worker.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
                busy += self._give(worker, scenarios)
            while busy:
                for key, _ in ready.select():
                    busy -= 1
                    line = key.data.stdout.readline()
                    if not line:
                        raise RuntimeError("a worker of the simulation has died")
                    failure = json.loads(line)
                    if failure is not None:
                        found.append(Failure(**failure))
                    if len(found) < most_failures and time.monotonic() - began < until_s:
                        busy += self._give(key.data, scenarios)
        self.seconds += time.monotonic() - began
        return found

    def _give(self, worker: subprocess.Popen[str], scenarios: Iterator[tuple[str, int]]) -> bool:
        following = next(scenarios, None)
        if following is None:
            return False
        self.ran[following[0]] += 1
        print(json.dumps(following), file=worker.stdin, flush=True)
        return True

    def close(self) -> None:
        """Let the workers end."""
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.close()
            worker.wait()

    def __enter__(self) -> Campaign:  # noqa: PYI034 there is no other one
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
