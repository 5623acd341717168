"""Each query in section 2 of the paper on STREAM (Motwani et al., CIDR 2003), word by word, over a small stream, and
some more. The values are counted by hand.
"""

from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pytest
from kit.continuous import DOMAINS, MOMENT, REQUESTS
from kit.evaluated import changes
from kit.evaluated import relation_at as at

from upstream.operators.relations.plan.nodes import Stream

S = Stream("S", pa.schema({"t": MOMENT, "k": pa.string()}), event_time="t")


def counts_at(found, taus):
    """Return the only row of a relation at each time: a count."""
    for tau in taus:
        assert at(found, tau).total() == 1
    return {tau: next(iter(at(found, tau)))[0] for tau in taus}


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_sums_of_decimals_are_exact_whatever_comes_and_leaves(steps):
    total = "SUM(CAST(LENGTH(k) AS DECIMAL(38, 10)))"
    query = f"SELECT {total} AS total, AVG(CAST(LENGTH(k) AS DECIMAL(5, 2))) AS mean FROM S [RANGE 3 MICROSECONDS]"
    found = changes(query, {S: [(1, "a"), (2, "bb"), (2, "bb"), (6, "a")]}, steps=steps)
    sums = [{tuple(map(float, row)) for row in at(found, tau) if row[0] is not None} for tau in (1, 2, 4, 5, 6)]
    assert sums == [{(1, 1)}, {(5, 1.666667)}, {(4, 2)}, set(), {(1, 1)}]


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_over_gives_each_row_once_with_the_aggregate_of_its_window(steps):
    query = (
        "SELECT k, COUNT(*) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN INTERVAL '2' MICROSECONDS PRECEDING "
        "AND CURRENT ROW) AS n FROM S"
    )
    rows = [(1, "a"), (2, "a"), (3, "a"), (4, "a"), (4, None), (5, None), (5, None)]
    found = changes(query, {S: rows}, steps=steps)
    counted = Counter({(*row[:2], row[-2]): row[-1] for row in found})
    assert counted == Counter(
        {("a", 1, 1): 1, ("a", 2, 2): 1, ("a", 3, 3): 1, ("a", 3, 4): 1, (None, 1, 4): 1, (None, 3, 5): 2}
    ), "rows that equal those of the microsecond before are given, too"


HOUR = timedelta(hours=1)
SU = "stanford.edu"
CS = "http://cs.stanford.edu/"
EE = "http://ee.stanford.edu/"


def asked(*rows):
    """Requests as (hour, client, domain, URL)."""
    return {REQUESTS: [(client, domain, url, hour) for hour, client, domain, url in rows]}


LAST_DAY = """
Select Count(*)
From Requests S [Range 1 Day Preceding]
Where S.domain = 'stanford.edu'
"""


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_requests_to_a_domain_in_the_last_day_and_each_new_count(steps):
    rows = asked(
        (1, 7, SU, CS), (2, 8, "shop.com", "/"), (9, 8, SU, EE), (9, 8, SU, EE), (20, 7, SU, CS), (33, 9, SU, CS)
    )
    found = changes(LAST_DAY, rows, end=60, steps=steps, unit=HOUR)
    # A request counts from its hour on, for 24 hours: at the 33rd, those of the 9th leave and a new one comes.
    counts = {0: 0, 1: 1, 2: 1, 8: 1, 9: 3, 19: 3, 20: 4, 24: 4, 25: 3, 32: 3, 33: 2, 43: 2, 44: 1, 56: 1, 57: 0, 60: 0}
    assert counts_at(found, counts) == counts
    came = changes(f"Istream({LAST_DAY})", rows, end=60, steps=steps, unit=HOUR)
    new = [(n, hour) for n, hour, weight in came if hour > 0 for _ in range(weight)]
    assert new == [(1, 1), (3, 9), (4, 20), (3, 25), (2, 33), (1, 44), (0, 57)]


TEN_OF_EACH_CLIENT = """
Select Count(*)
From Requests S
  [Partition By S.client_id
   Rows 10 Preceding
   Where S.domain = 'stanford.edu']
Where S.URL Like 'http://cs.stanford.edu/%'
"""


@pytest.mark.parametrize("steps", [1, 4, 14])
def test_the_ten_newest_requests_of_each_client_to_a_domain(steps):
    page = CS + "index.html"
    of_seven = [(hour, 7, SU, page if hour in {1, 2, 9} else EE) for hour in range(1, 12)]  # eleven to the domain
    rows = asked(*of_seven, (12, 7, "shop.com", page), (13, 8, SU, page), (14, 7, SU, EE))
    found = changes(TEN_OF_EACH_CLIENT, rows, steps=steps, unit=HOUR)
    # Hour 11 brings the eleventh request: that of hour 1 leaves. The one to another domain does not count as one of
    # the ten. Each client has ten of its own. Hour 14 pushes out that of hour 2.
    counts = {0: 0, 1: 1, 2: 2, 8: 2, 9: 3, 10: 3, 11: 2, 12: 2, 13: 3, 14: 2}
    assert counts_at(found, counts) == counts


COMMERCE = """
Select T.URL
From
  (Select client_id, URL
   From Requests S, Domains R
   Where S.domain = R.domain
   And R.type = 'commerce') T Sample(100)
Where T.client_id Between 1 And 1000
"""
KINDS = {DOMAINS: [("shop.com", "commerce"), (SU, "study"), ("mall.com", "commerce")]}


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_urls_of_a_sample_of_requests_for_commerce(steps):
    requests = asked(
        (1, 1, "shop.com", "/a"),
        (2, 1000, "mall.com", "/b"),
        (3, 0, "shop.com", "/c"),
        (4, 1001, "shop.com", "/d"),
        (5, 5, SU, "/e"),
        (6, 5, "nowhere.com", "/f"),
        (7, 5, "mall.com", "/b"),
    )
    found = changes(COMMERCE, {**requests, **KINDS}, steps=steps, unit=HOUR)
    assert sorted(found, key=lambda row: row[1]) == [("/a", 1, 1), ("/b", 2, 1), ("/b", 7, 1)]
