"""What a join must give, by comparing each row with each other; and the feeds of the jobs that join in tests."""

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

Row = tuple[Any, int, int]
"""Key, time, number."""


def expected(
    left: Sequence[Row], right: Sequence[Row], meets: Callable[[Row, Row], bool], how: str
) -> list[tuple[int, int]]:
    """Return pairs of numbers, -1 for no row; of semi and anti joins the left's number and -1.

    Outer joins leave rows without a key out.
    """
    pairs = [
        (one[2], two[2]) for one in left for two in right if one[0] is not None and one[0] == two[0] and meets(one, two)
    ]
    met = {one for one, _ in pairs}, {two for _, two in pairs}
    alone = [(one[2], -1) for one in left if one[2] not in met[0] and (one[0] is not None or how == "anti")]
    if how == "semi":
        return sorted((one, -1) for one in met[0])
    if how == "anti":
        return sorted(alone)
    if how in ("left", "full"):
        pairs += alone
    if how in ("right", "full"):
        pairs += [(-1, two[2]) for two in right if two[2] not in met[1] and two[0] is not None]
    return sorted(pairs)


DELAY_MS = 100


def write_join_feed(folder: Path, name: str, files: int) -> list[Row]:
    """CSV files of rows (key, time, number) for `join` of `fault/jobs.py`, out of order by less than the delay."""
    folder.mkdir(exist_ok=True)
    chance = random.Random(name)
    rows: list[Row] = []
    for number in range(files):
        lines: list[str] = []
        for at in range(80):
            row = (chance.randrange(5), 10_000 + number * 60 + at // 2 - chance.randrange(DELAY_MS - 10), len(rows))
            rows.append(row)
            lines.append(",".join(map(str, row)))
        file = folder / f"{name}-{number:03d}.csv"
        file.write_text("\n".join(["k,ms,v", *lines]) + "\n")
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
    return rows


def meet_in_job(one: Row, two: Row) -> bool:
    """Whether two rows are near enough in time for that job."""
    return -30 <= two[1] - one[1] <= 40


def pairs_in(table: pl.DataFrame) -> list[tuple[int, int]]:
    """The pairs of numbers in that job's table, -1 for no row."""
    found = table.select("v", "v_right").rows()
    return sorted((-1 if one is None else one, -1 if two is None else two) for one, two in found)
