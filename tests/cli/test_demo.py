import datetime

import polars as pl
import pytest
from kit.programs import run_command

from upstream.cli.demo import (
    KEYS,
    LANES,
    MERGE,
    ROWS_PER_SECOND,
    SECONDS_A_ROW,
    UPSTREAM,
    AgeReading,
    ages_by_budget,
    draw,
    fixed_cost_s,
    least_age_s,
    mean_age_s,
    sparkline,
)

from .commits import commit
from .in_process import refused


def readings(*pairs: tuple[float | None, float | None]) -> list[AgeReading]:
    return [AgeReading(float(number), {UPSTREAM: one, MERGE: other}) for number, (one, other) in enumerate(pairs)]


def test_bars_are_on_one_scale_and_blank_where_there_is_no_row():
    ours, theirs, about = sparkline(readings((1.0, None), (2.0, 16.0), (0.0, 8.0)))
    assert ours.split(UPSTREAM)[1].strip() == "▁▁▁ 0.0 s at the end"
    assert theirs.split(MERGE)[1] == "  █▄ 8.0 s at the end"
    assert "the highest is 16.0 s" in about
    assert sparkline([]) == []
    assert sparkline(readings((None, None))) == []
    assert sparkline(readings((1.0, None)))[1].endswith("no row")


def test_mean_age_is_that_of_the_rows_there_are(tmp_path):
    table = str(tmp_path / "t")
    assert mean_age_s(table, 0) is None
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    rows = pl.DataFrame({"time": [at, at + datetime.timedelta(seconds=10)]})
    rows.head(0).write_delta(table)
    assert mean_age_s(table, 0) is None
    rows.write_delta(table, mode="append")
    assert mean_age_s(table, int(at.timestamp() * 1e6) + 30_000_000) == 25.0


def test_the_least_age_is_that_of_the_best_batches():
    def ages(fixed_s: float) -> list[float]:
        # A turn of all keys, in batches of so many rows: mean staleness at the commits, and between them.
        costs = [(rows, fixed_s + rows * SECONDS_A_ROW / LANES) for rows in range(1, KEYS + 1)]
        return [batch_s * (1 + KEYS / rows / 2) for rows, batch_s in costs]

    apart_s = least_age_s(0.0) - KEYS * SECONDS_A_ROW / LANES / 2
    assert apart_s == pytest.approx(4 / 3 * KEYS / ROWS_PER_SECOND, rel=0.02)  # Zipf's 0.5
    for fixed_s in (0.1, 0.5, 2.0):
        assert least_age_s(fixed_s) - apart_s == pytest.approx(min(ages(fixed_s)), rel=1e-3)


def test_the_fixed_cost_is_what_the_service_leaves_of_a_batch():
    times_and_rows = [(10.0, 5000), (12.0, 1500), (13.5, 1000)]
    commits = [commit(0, committed_at_us=int(at_s * 1e6), applied=rows) for at_s, rows in times_and_rows]
    assert fixed_cost_s(commits) == pytest.approx(0.5)
    assert fixed_cost_s(commits[:1]) is None


def test_each_budget_has_the_ages_at_its_end():
    seen = readings(*((float(age), None) for age in (9, 3, 3, 3, 3, 3, 8, 7, 7, 7, 7, 7)), (None, None))
    assert ages_by_budget(seen, [(0.0, "auto"), (6.0, 200), (40.0, 400)]) == [("auto", 3.0), (200, 7.0)]


def test_the_picture_is_drawn(tmp_path):
    drawn = draw(readings((1.0, None), (2.0, 3.0)), tmp_path / "age.png")
    assert drawn is not None
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_a_folder_of_others_is_left_alone(tmp_path):
    (tmp_path / "with_merge").mkdir()
    (tmp_path / "with_merge" / "mine").write_text("x")
    said = refused("demo", "--to", tmp_path, "--seconds", "5")
    assert "is not from an earlier demo" in said
    assert (tmp_path / "with_merge" / "mine").exists()


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_it_runs(tmp_path):
    done = run_command("demo", "--seconds", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the highest is" in done.stderr
    assert "The workbench is at http://127.0.0.1:" in done.stderr
    folder = tmp_path / "upstream-demo"
    assert (folder / "age.png").exists()
    ours = pl.read_delta(str(folder / "with_queue" / "table"))
    assert 0 < ours.height <= KEYS
    assert ours["key"].is_unique().all()
