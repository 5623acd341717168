"""The benchmark of the queue runs as its documentation says: equal answers, then a table and JSON."""

from __future__ import annotations

import json

import pytest
from kit.programs import run_benchmark


@pytest.mark.parametrize(
    ("part", "works"),
    [
        ("pure", 6),  # one for each policy
        ("shard", 5),
        pytest.param("pending", 4, marks=pytest.mark.long),
        ("order", 0),
    ],
)
def test_quick_part(part, works, tmp_path):
    out = tmp_path / "out.json"
    done = run_benchmark("queue", "--quick", "--part", part, "--json", out)
    assert done.returncode == 0, done.stderr
    written = json.loads(out.read_text())
    assert len({row["work"] for row in written["rows"]}) == works
    assert all(row["seconds"] > 0 for row in written["rows"])
    more = written["more"][part]
    if part == "order":
        for each in more.values():
            assert each["served"] > 0
            assert each["wrong_share"] < 0.05
            assert each["late_ms_max"] < each["queue_ms"] / 10
    if part == "pending":
        numbers, text = more.values()
        # Whole numbers are found without looking at rows: only what is served is read. Text has to be compared.
        assert numbers["row_pages_read"] <= text["row_pages_read"]
        assert numbers["bytes_written"] < numbers["stored_bytes"] / 16
