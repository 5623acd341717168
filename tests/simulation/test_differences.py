"""Random queries in CI: some, others with each seed."""

import os

import pytest

from .differences import Campaign

SEED = int(os.environ.get("UPSTREAM_SEED", "0"))


@pytest.mark.parametrize("count", [24, pytest.param(20_000, marks=[pytest.mark.long, pytest.mark.timeout(7200)])])
def test_random_queries_have_the_rows_that_duckdb_finds(count):
    campaign = Campaign(SEED)
    campaign.run(count)
    for more in range(count, 2 * count, 4):  # of few queries, all in other words may be refused
        if campaign.outcome["in other words"] == 0:
            campaign.run(4, more)
    assert not campaign.differences, f"UPSTREAM_SEED={SEED}, and {campaign.differences[0]}"
    assert campaign.outcome["with rows"] > count / 8
    assert campaign.outcome["in other words"]
