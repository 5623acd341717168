"""The options reference says what the code takes."""

from __future__ import annotations

from pathlib import Path

from upstream.cli.reference import options_reference

DOCS = Path(__file__).parents[2] / "docs"


def test_options_page_is_what_the_declarations_say() -> None:
    assert (DOCS / "options.md").read_text(encoding="utf-8") == options_reference(), (
        "docs/options.md is out of date: run `upstream options > docs/options.md`"
    )
