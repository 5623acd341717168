"""Pages that are made from code, or list what the code has, are current."""

import re

import pytest
from kit import modules
from kit.places import ROOT

from upstream.cli.options import options_reference
from upstream.sink.commit.metrics_table import METRICS_SCHEMA

DOCS = ROOT / "docs"
MADE = {
    "reference": lambda: modules.tool("reference").page(),
    "command-line": lambda: modules.tool("reference").command_line(),
    "options": options_reference,
    "functions": lambda: modules.tool("functions").page(),
}


@pytest.mark.parametrize("name", MADE)
def test_a_page_that_is_made_from_code_is_current(name):
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert page == MADE[name](), f"docs/{name}.md is out of date: run `make reference`"


def test_each_column_of_the_metrics_is_on_its_page():
    table = (DOCS / "metrics.md").read_text(encoding="utf-8").partition("| column |")[2]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)) == sorted(METRICS_SCHEMA.names)


def test_each_decision_is_in_the_list():
    folder = DOCS / "decisions"
    listed = re.findall(r"\]\((\d{4}-[\w-]+)\.md\)", (folder / "index.md").read_text(encoding="utf-8"))
    assert listed == sorted(each.stem for each in folder.glob("0*.md"))
