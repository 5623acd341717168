"""`python -m tests.simulation`: so many scenarios, or for so long, or one again."""

import argparse
import json
import os
import sys
from typing import Any


def main() -> int:
    # Each process has one thread of its own to compute with, and none before it is forked.
    os.environ |= {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "TOKIO_WORKER_THREADS": "1"}
    from . import machine

    machine.install()
    from . import campaign, profiles, running
    from .defects import DEFECTS
    from .scenario import Scenario

    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--scenarios", type=int, help="run this many scenarios [default: 2,000, without --hours and --seed]"
    )
    parser.add_argument("--hours", type=float, help="run for this many hours, from a new seed")
    parser.add_argument("--seed", type=int, help="start at this seed; with --profile, rerun this scenario alone")
    parser.add_argument("--profile", choices=sorted(campaign.SHARES), help="use only this profile")
    parser.add_argument("--scenario", help="run a scenario given as JSON, as a failure prints it")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=1, help="stop after this many failures")
    parser.add_argument(
        "--shrink", type=float, default=20.0, help="shrink a failure for this many seconds; 0 to skip it"
    )
    parser.add_argument("--defect", choices=sorted(DEFECTS), help="restore this defect, see defects.py")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        assert running
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line)), default=vars), flush=True)
        return 0
    if given.scenario or (given.seed is not None and given.profile and not given.scenarios):
        if given.defect:
            DEFECTS[given.defect].put_back()
        one = Scenario.from_json(given.scenario) if given.scenario else profiles.made(given.profile, given.seed)
        error = campaign.fails(one)
        print("it passes" if error is None else campaign.failure_of(one, error, given.shrink, given.defect).account)
        return error is not None
    first = given.seed if given.seed is not None else int.from_bytes(os.urandom(4), "big") if given.hours else 0
    count = given.scenarios or (1 << 40 if given.hours else 2_000)
    done = campaign.run(
        campaign.numbered(first, count, given.profile), given.workers, defect=given.defect, shrink_s=given.shrink,
        most_failures=given.failures, until_s=(given.hours or 1e6) * 3600,
    )  # fmt: skip
    for failure in done.failures:
        print(failure.account, end="\n\n")
    print(
        f"{done.ran.total()} scenarios in {done.seconds:.0f} s from seed {first}, {len(done.failures)} failed: "
        f"{dict(done.ran)}"
    )
    return bool(done.failures)


def answer(order: dict[str, Any]) -> Any:
    """What a test asks for: many scenarios, those that are to find a defect, the answers of some, those of
    `why`, or the failures of hosted queries.
    """
    from . import campaign, hosted_failures
    from .defects import DEFECTS

    if "answers" in order:
        with campaign.forked(max(2, os.cpu_count() or 2)) as pool:
            made = {
                profile: {seed: pool.submit(campaign.answers, profile, seed) for seed in seeds}
                for profile, seeds in order["answers"].items()
            }
            return {profile: {seed: each.result() for seed, each in some.items()} for profile, some in made.items()}
    if "why" in order:
        from .why_checks import answers_of

        with campaign.forked(max(2, os.cpu_count() or 2)) as pool:
            return answers_of(order["why"], pool)
    if "forgets" in order:
        with campaign.forked(1) as pool:
            return pool.submit(hosted_failures.check, order["forgets"]).result()
    if "defect" in order:
        defect = DEFECTS[order["defect"]]
        seeds = campaign.numbered(defect.seed, order["count"], defect.profile)
        done = campaign.run(seeds, 1, defect=order["defect"], shrink_s=0)
    else:
        done = campaign.run(campaign.numbered(order["first"], order["count"]), max(2, os.cpu_count() or 2))
    return done


if __name__ == "__main__":
    sys.exit(main())
