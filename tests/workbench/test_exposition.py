"""What goes over the wire to Prometheus; that a real one reads it is in test_metrics_in_prometheus.py."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.feedback.ages import Ages, bin_bound_s
from upstream.workbench.exposition import (
    OPEN_METRICS,
    PROTOBUF,
    TEXT,
    MetricFamily,
    accepted,
    bin_runs,
    classic_buckets,
    open_metrics,
    text,
)

AGES = Ages.of(np.array([100, 300_000, 300_001, 5_000_000]))
FAMILIES = [
    MetricFamily("a", "counter", "Rows", [({"table": 'a "b" \\ c\nd'}, 3)]),
    MetricFamily("b_seconds", "gauge", "An age", [({"table": "t"}, float("inf")), ({"table": "u"}, 0.25)]),
    MetricFamily("c_seconds", "histogram", "Ages", [({"table": "t"}, AGES)]),
]


def test_text():
    lines = text(FAMILIES).decode().splitlines()
    assert lines[:3] == ["# HELP a_total Rows", "# TYPE a_total counter", 'a_total{table="a \\"b\\" \\\\ c\\nd"} 3']
    assert lines[5:7] == ['b_seconds{table="t"} +Inf', 'b_seconds{table="u"} 0.25']
    assert 'c_seconds_bucket{table="t",le="0.25"} 1' in lines
    assert 'c_seconds_bucket{table="t",le="0.5"} 3' in lines
    assert lines[-3:] == [
        'c_seconds_bucket{table="t",le="+Inf"} 4',
        'c_seconds_sum{table="t"} 5.600101',
        'c_seconds_count{table="t"} 4',
    ]


def test_open_metrics_names_families_without_a_suffix_and_says_their_units():
    lines = open_metrics(FAMILIES).decode().splitlines()
    assert lines[1] == "# TYPE a counter"
    assert lines[2].startswith("a_total{")
    assert "# UNIT b_seconds seconds" in lines
    assert lines[-1] == "# EOF"


@pytest.mark.parametrize(
    ("header", "media"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html", TEXT),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OPEN_METRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.5", TEXT),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.1", TEXT),
        ("application/openmetrics-text;q=nonsense", TEXT),
        (f"{PROTOBUF},application/openmetrics-text;version=1.0.0;q=0.75", PROTOBUF),
        ("application/vnd.google.protobuf;encoding=text", TEXT),
    ],
)
def test_the_form_that_a_scraper_prefers(header, media):
    assert accepted(header)[0] == media


@given(st.lists(st.integers(0, 10**12), max_size=50))
def test_buckets_have_the_ages_that_belong_to_them(micros):
    ages = Ages.of(np.array(micros, dtype=np.int64))
    for bound, upto in classic_buckets(ages):
        # A bound is below 2^27 seconds a power of two, so the edges themselves are exact.
        assert upto == sum(age / 1e6 < bound for age in micros)
    found = {start + at: count for start, counts in bin_runs(ages) for at, count in enumerate(counts)}
    assert sum(found.values()) + ages.bins.get(0, 0) == len(micros)
    runs = [*bin_runs(ages)]
    assert all(start + len(counts) < after for (start, counts), (after, _) in pairwise(runs))
    for index, count in found.items():
        low, high = 2 ** ((index - 1) / 8), 2 ** (index / 8)
        assert bin_bound_s(index + 80) == pytest.approx(high)
        assert count == sum(low * (1 - 1e-9) <= max(age, 1) / 1e6 < high * (1 - 1e-9) for age in micros)
