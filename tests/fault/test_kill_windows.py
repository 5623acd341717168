"""Windows under kill -9: whatever dies in whichever step of a batch, results and late output are those of a run that
nobody killed.
"""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from kit.feeds import write_csv
from kit.jobs import Job, last_commit
from kit.queries import run_to_end
from kit.tables import read_frame, read_letters
from pyspark.sql import SparkSession

from upstream.sink.spec.steps import CommitStep

from . import jobs

FIRST_MS = 1_700_000_000_000
SPAN_MS = 400
DELAY_MS, RANGE_MS, SLIDE_MS = 500, 2000, 300

Row = tuple[int, int, float]
"""Key, time in milliseconds, a value that no other row has."""


def write_feed(folder: Path, files: int) -> list[Row]:
    """Rows mostly within the delay, some within the allowed lateness, a few beyond it."""
    chance = random.Random(files)
    rows: list[Row] = []
    for number in range(files):
        begin = len(rows)
        for at in range(SPAN_MS):
            behind = chance.randrange(3000 if chance.random() < 0.03 and number > 4 else DELAY_MS - 50)
            rows.append((chance.randrange(30), FIRST_MS + number * SPAN_MS + at - behind, len(rows) / 2))
        write_csv(folder / f"part-{number:03d}.csv", "k,ms,v", rows[begin:])
    return rows


@dataclasses.dataclass(frozen=True)
class Query:
    """The job over a feed, a file a batch: killed in processes of its own, and let end in the session of the tests."""

    feed: Path
    folder: Path

    @property
    def places(self) -> tuple[str, ...]:
        return (str(self.feed), *(str(self.folder / name) for name in ("table", "checkpoint")))

    @property
    def job(self) -> Job:
        return Job(Path(jobs.__file__), Path(f"{self.folder}.log"), ("windows", *self.places))

    def kill_after_a_commit(self, wait_s: float) -> None:
        before = self.done
        self.job.kill_when(lambda: self.done > before, after_s=wait_s)

    def finish(self, spark: SparkSession) -> None:
        run_to_end(jobs.windows(spark, *self.places))

    @property
    def done(self) -> int:
        return last_commit(self.folder / "checkpoint")

    def windows(self) -> pl.DataFrame:
        return read_frame(self.folder / "table").drop("_upstream_seq").sort("k", "window_id")

    def late(self) -> list[Row]:
        return sorted((row["k"], row["ms"], row["v"]) for row in read_letters(self.letters, "late"))

    def unused_letters(self) -> set[Path]:
        return set(self.letters.glob("*.parquet")) - set(map(Path, DeltaTable(self.letters).file_uris()))

    @property
    def letters(self) -> Path:
        return self.folder / "checkpoint" / "dead_letters"


def counts(rows: Iterable[Row], watermark_ms: int) -> Counter[tuple[int, int]]:
    """How many rows are in each key's windows that are complete at a watermark, by the definition."""
    return Counter(
        (k, window)
        for k, ms, _ in rows
        for window in range(ms // SLIDE_MS, (ms + RANGE_MS) // SLIDE_MS)
        if (window + 1) * SLIDE_MS <= watermark_ms
    )


@pytest.mark.fault
@pytest.mark.parametrize(
    ("files", "steps", "at_random"),
    [
        pytest.param(
            12, [CommitStep.LOOKED, CommitStep.COMMITTED], 0, marks=pytest.mark.long, id="before and after the commit"
        ),
        pytest.param(
            40,
            [CommitStep.DECIDED, CommitStep.HANDED_OVER, CommitStep.LOOKED, CommitStep.COMMITTED, CommitStep.MEASURED],
            3,
            marks=[pytest.mark.long, pytest.mark.timeout(2400)],
            id="in every step, three times more",
        ),
        pytest.param(300, [], 50, marks=[pytest.mark.long, pytest.mark.timeout(7200)], id="fifty times at random"),
    ],
)
def test_a_query_that_was_killed_gives_what_one_gives_that_nobody_killed(spark, tmp_path, files, steps, at_random):
    rows = write_feed(tmp_path / "feed", files)
    whole, killed = (Query(tmp_path / "feed", tmp_path / name) for name in ("whole", "killed"))
    whole.finish(spark)

    for number, step in enumerate(steps):
        killed.job.kill_at(step, batch=5 + 2 * number)
    chance = random.Random(at_random)
    for _ in range(at_random):
        assert killed.done < files - 2, "there was nothing left to kill"
        killed.kill_after_a_commit(wait_s=chance.uniform(0, 1.0))
    killed.finish(spark)

    assert killed.windows().equals(whole.windows())
    assert killed.late() == whole.late()
    assert not killed.unused_letters(), "a killed writer has left a file"

    # What both give is right: no window is lost, and each has all its rows, but for late ones, of which none is late
    # twice.
    late, watermark_ms = whole.late(), max(ms for _, ms, _ in rows) - DELAY_MS
    assert len(late) > 10
    assert len(set(late)) == len(late)
    assert set(late) <= set(rows)
    every, on_time = counts(rows, watermark_ms), counts(set(rows) - set(late), watermark_ms)
    found = {(k, window): n for k, window, n in whole.windows().select("k", "window_id", "n").iter_rows()}
    assert len(found) == whole.windows().height, "a window is there twice"
    assert on_time.keys() <= found.keys() <= every.keys()
    assert all(on_time[window] <= n <= every[window] for window, n in found.items())
    assert any(n > on_time[window] for window, n in found.items()), "no late row has counted where it still could"
