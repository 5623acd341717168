"""Staleness seen from outside equals what a plain loop over keys, instants and versions finds."""

import json
import os

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

ORIGIN_US = 1_700_000_000_000_000
KEYS = 7
FEED = {"seed": "3", "rowsPerSecond": "40", "keys": str(KEYS), "skew": "0.8", "arrivals": "poisson"}
# A version is committed at the first number (seconds after the feed began) and shows the rows that had come by the
# second.
VERSIONS = [(0.55, 0.2), (1.4, 1.1), (2.85, 2.0), (3.3, 3.1)]
WARM_S, UNTIL_S = 1.0, 4.0


def test_staleness_as_a_plain_loop_finds_it(outside, tmp_path):
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text(f'v1\n{{}}\n{{"origin_us": {ORIGIN_US}}}')
    key, at = outside.arrivals(FEED, tmp_path / "checkpoint", ORIGIN_US + int(UNTIL_S * 1e6))
    rows = sorted(zip(at.tolist(), key.tolist(), strict=True))
    assert len(rows) > 100

    shown, changes = {}, 0
    history = []
    for number, (committed_s, until_s) in enumerate(VERSIONS):
        before = dict(shown)
        shown.update({k: t for t, k in rows if t <= ORIGIN_US + until_s * 1e6})
        if committed_s >= WARM_S:
            changes += sum(before.get(k) != t for k, t in shown.items())
        history.append((ORIGIN_US + committed_s * 1e6, dict(shown)))
        table = pa.table({"key": list(shown), "time": pa.array(list(shown.values()), pa.timestamp("us", "UTC"))})
        write_deltalake(str(tmp_path / "table"), table, mode="overwrite" if number else "error")
        log = tmp_path / "table" / "_delta_log" / f"{number:020d}.json"
        assert any("commitInfo" in json.loads(line) for line in log.read_text().splitlines())
        nanoseconds = int((ORIGIN_US + committed_s * 1e6) * 1000)
        os.utime(log, ns=(nanoseconds, nanoseconds))

    samples = []
    for tenth in range(round(WARM_S * 10), round(UNTIL_S * 10)):
        now = ORIGIN_US + tenth * 100_000
        visible = [table for committed, table in history if committed <= now]
        for k in range(KEYS):
            newest = visible[-1].get(k, 0) if visible else 0
            waiting = [t for t, other in rows if other == k and newest < t <= now]
            samples.append((now - min(waiting)) / 1e6 if waiting else 0.0)

    found = outside.seen(tmp_path / "table", tmp_path / "checkpoint", FEED, WARM_S, UNTIL_S)
    assert found.mean == pytest.approx(np.mean(samples))
    assert (found.p50, found.p99) == pytest.approx(tuple(np.percentile(samples, [50, 99])))
    assert found.max == pytest.approx(max(samples))
    assert found.commits == sum(committed >= WARM_S for committed, _ in VERSIONS)
    assert found.results_per_second == pytest.approx(changes / (UNTIL_S - WARM_S))


def test_ages_as_a_plain_sum_over_instants_finds_them(outside, tmp_path):
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text(f'v1\n{{}}\n{{"origin_us": {ORIGIN_US}}}')
    means = []
    for number, (committed_s, until_s) in enumerate(VERSIONS):
        times = [ORIGIN_US + round(until_s * 1e6) - number * 100_000 * back for back in range(3)]
        means.append((committed_s, until_s - number * 0.1))
        rows = pa.table({"key": [0, 1, 2], "time": pa.array(times, pa.timestamp("us", "UTC"))})
        write_deltalake(str(tmp_path / "table"), rows, mode="overwrite" if number else "error")
        nanoseconds = (ORIGIN_US + round(committed_s * 1e6)) * 1000
        os.utime(tmp_path / "table" / "_delta_log" / f"{number:020d}.json", ns=(nanoseconds, nanoseconds))

    every = np.arange(WARM_S, UNTIL_S, 0.001) + 0.0005
    old = np.array([now - [mean for committed, mean in means if committed <= now][-1] for now in every])
    found = outside.ages(tmp_path / "table", tmp_path / "checkpoint", WARM_S, UNTIL_S)
    assert found.mean == pytest.approx(old.mean(), abs=1e-6)
    assert found.halves == pytest.approx((old[:1500].mean(), old[1500:].mean()), abs=1e-6)
    assert (found.max, found.commits) == (pytest.approx(old.max(), abs=0.001), 3)
