"""A table's life, shortened."""

import pytest


@pytest.mark.long
@pytest.mark.parametrize(
    ("commits", "every", "kept", "more"),
    [
        (520, 40, 100, {}),
        pytest.param(100_000, 1_000, 2_000, {"retention": "1 hour"}, marks=pytest.mark.timeout(14_400)),
    ],
)
def test_what_a_table_holds_follows_from_the_versions_that_are_kept(
    benchmark_module, tmp_path, commits, every, kept, more
):
    lines = list(benchmark_module("years").live(tmp_path, commits, every, retentionVersions=str(kept), **more))
    settled = [line for line in lines if line.commits > 3 * kept]
    assert settled
    assert max(line.log for line in settled) <= kept + 260
    assert max(line.files for line in settled) <= 5 * (kept + 260)
    assert max(line.checkpoint_kb for line in settled) < 3 * max(settled[0].checkpoint_kb, 50)
    assert settled[-1].memory_mb < 1.3 * settled[0].memory_mb + 20
