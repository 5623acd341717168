"""A figure that a page quotes is the one that a benchmark recorded: in performance.md, or in docs/figures."""

import json
import re

import pytest
from kit.places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
COMPARISONS = (ROOT / "docs" / "comparisons.md").read_text(encoding="utf-8")
OVERLOAD = json.loads((ROOT / "docs" / "figures" / "overload.json").read_text(encoding="utf-8"))["rows"]


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def row(page: str, first: str) -> list[list[float]]:
    """The numbers in each cell behind the first of the table's row that begins so."""
    (line,) = [line for line in page.splitlines() if line.replace("*", "").startswith(f"| {first}")]
    return [numbers(cell) for cell in line.strip("| ").split(" | ")[1:]]


def flat(cells: list[list[float]]) -> list[float]:
    return [number for cell in cells for number in cell]


def section(name: str) -> str:
    return re.split(r"\n## ", PERFORMANCE.split(f"\n## {name}\n", 1)[1], maxsplit=1)[0]


def latest(engine: str) -> list[list[float]]:
    return row(section("The newest row per key of 20 M rows"), engine)


def windows(kind: str) -> list[list[float]]:
    return row(section("Windows"), kind)


def same(quoted: list[float], recorded: list[float]) -> None:
    """A quoted figure is the recorded one, rounded."""
    assert quoted == pytest.approx(recorded, rel=0.04)


def test_the_five_figures():
    ours, recipe, flink = latest("this project")[2][0], latest("Spark recipe")[2][1], latest("Flink mini-batch")[2][1]
    same(flat(row(README, "Newest row per key")[:2]), [19 / ours, recipe, flink])
    spark, flink = windows("sliding 10 min by 1 s, latest per key")[2:]
    assert row(README, "Window of 10 min")[1] == [spark[1], flink[1]]
    spark, flink = windows("tumbling 60 s")[2:]
    same(row(README, "Tumbling window")[1], [spark[1], flink[1]])
    ours, _, merge = row(section("Batches into large tables"), "10 M keys |")[:3]
    same(flat(row(README, "10,000 updates")), [ours[0], merge[0] / ours[0]])
    backlog = [row(section("A backlog in Kafka"), engine)[0] for engine in ("this project", "Spark's", "Flink")]
    same(flat(row(README, "Backlog")), [5 / backlog[0][0], backlog[1][1], backlog[2][1]])


def test_the_ratios_with_the_start():
    words = README.split("End to end", 1)[1].split("\n\n", 1)[0]
    tumbling = windows("tumbling 60 s")
    same(numbers(words), [latest("Spark recipe")[0][1], tumbling[2][0], tumbling[3][0]])
    assert latest("Flink |")[0][1] == pytest.approx(latest("Spark recipe")[0][1], rel=0.04), "one figure for both"


def test_the_ratios_at_the_top_of_the_page_of_performance():
    top = PERFORMANCE.split("\n## ", 1)[0]
    same(flat(row(top, "[newest row")), [latest("Spark recipe")[2][1], latest("Flink mini-batch")[2][1]])
    same(flat(row(top, "the same, whole")), [latest("Spark recipe")[0][1], latest("Flink |")[0][1]])
    same(row(top, "[batch of")[0], row(README, "10,000 updates")[1])
    same(flat(row(top, "[backlog")), row(README, "Backlog")[1])
    assert numbers(COMPARISONS.split("deletion vectors: [", 1)[1].split("]", 1)[0]) == row(top, "[batch of")[0]


def test_the_picture_the_table_and_the_caption_of_overload_are_of_one_record():
    table = re.findall(r"^\| (\d+) \| \**([\w-]+)\** \| (.*) \|$", section("Under overload"), re.MULTILINE)
    assert [(float(load), engine, numbers(cells)) for load, engine, cells in table] == [
        (run["load"], run["engine"], [run["mean"], run["p99"], run["max"], run["peak_mb"]]) for run in OVERLOAD
    ]
    picture = (ROOT / "docs" / "overload.svg").read_text(encoding="utf-8")
    drawn = [float(text) for text in re.findall(r"<text[^>]*font[^>]*>(\d+\.\d+)<", picture)]
    engines = ("append", "deduplicate", "in-place")
    assert drawn == [run["mean"] for engine in engines for run in OVERLOAD if run["engine"] == engine]
    at_ten = {run["engine"]: run for run in OVERLOAD if run["load"] == 10}
    caption = README.split("*At ten times", 1)[1].split("(", 1)[0]
    same(
        numbers(caption),
        [
            at_ten["in-place"]["mean"],
            at_ten["deduplicate"]["mean"],
            at_ten["append"]["mean"],
            30 + at_ten["append"]["seconds"],
        ],
    )
