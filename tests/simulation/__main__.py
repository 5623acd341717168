"""`python -m tests.simulation`: so many scenarios, or for so long, or one again."""

from __future__ import annotations

import argparse
import itertools
import os
import sys

from .campaign import SHARES, Campaign, fails, failure_of, numbered, work
from .scenario import Scenario


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--scenarios", type=int, help="how many; 2,000 unless --hours or --seed is given")
    parser.add_argument("--hours", type=float, help="for how long, from a seed that is new each time")
    parser.add_argument("--seed", type=int, help="the first one; alone with --profile, that scenario again")
    parser.add_argument("--profile", choices=sorted(SHARES), help="this one only")
    parser.add_argument("--scenario", help="a scenario as JSON, as a failure shows it")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=1, help="after how many to stop")
    parser.add_argument("--shrink", type=float, default=20.0, help="seconds to make a failure smaller; 0 leaves it")
    parser.add_argument("--defect", help="one to put back, see defects.py")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work or given.scenario or (given.seed is not None and given.profile and not given.scenarios):
        return _here(given)
    first = given.seed if given.seed is not None else int.from_bytes(os.urandom(4), "big") if given.hours else 0
    count = given.scenarios or (1 << 40 if given.hours else 2_000)
    scenarios = numbered(first, count)
    if given.profile:
        scenarios = ((given.profile, seed) for seed in itertools.islice(itertools.count(first), count))
    with Campaign(given.workers, given.defect, given.shrink) as campaign:
        failures = campaign.run(scenarios, given.failures, (given.hours or 1e6) * 3600)
    for failure in failures:
        print(failure.account, end="\n\n")
    ran = sum(campaign.ran.values())
    print(
        f"{ran} scenarios in {campaign.seconds:.0f} s from seed {first}, {len(failures)} failed: {dict(campaign.ran)}"
    )
    return bool(failures)


def _here(given: argparse.Namespace) -> int:
    """What one process does by itself."""
    from . import machine

    machine.install()
    if given.defect:
        os.environ["UPSTREAM_DEFECT"] = given.defect
        from .defects import DEFECTS

        DEFECTS[given.defect].put_back()
    if given.work:
        for line in work(iter(sys.stdin), given.shrink):
            print(line, flush=True)
        return 0
    from .profiles import made

    scenario = Scenario.from_json(given.scenario) if given.scenario else made(given.profile, given.seed)
    error = fails(scenario)
    print("it passes" if error is None else failure_of(scenario, error, given.shrink).account)
    return error is not None


if __name__ == "__main__":
    sys.exit(main())
