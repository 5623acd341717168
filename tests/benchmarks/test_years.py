"""A table's life, shortened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Benchmark = Callable[[str], ModuleType]


def check(lines: list[object], kept: int) -> None:
    """What a table holds follows from the versions that are kept, not from how many there have been."""
    settled = [line for line in lines if line.commits > 3 * kept]
    assert settled
    assert max(line.log for line in settled) <= kept + 260
    assert max(line.files for line in settled) <= 5 * (kept + 260)
    assert max(line.checkpoint_kb for line in settled) < 3 * max(settled[0].checkpoint_kb, 50)
    assert settled[-1].memory_mb < 1.3 * settled[0].memory_mb + 20


@pytest.mark.long
def test_some_hundred_commits(benchmark_module: Benchmark, tmp_path: Path) -> None:
    years = benchmark_module("years")
    check(list(years.live(tmp_path, 520, 40, retentionVersions="100")), kept=100)


@pytest.mark.long
@pytest.mark.timeout(14_400)
def test_a_hundred_thousand_commits(benchmark_module: Benchmark, tmp_path: Path) -> None:
    years = benchmark_module("years")
    lines = list(years.live(tmp_path, 100_000, 1_000, retention="1 hour", retentionVersions="2000"))
    check(lines, kept=2_000)
