"""Somebody else, at the worst moment."""

from collections.abc import Callable
from typing import Any

import pytest

from upstream.sink.commit import sink_table as commit_module


def commit_between(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Somebody else commits once, after the next commit has looked at the table and before its own is written."""
    looked = commit_module.last_summary
    raced: list[int] = []

    def race(*given: Any, **named: Any) -> Any:
        if not raced:
            raced.append(1)
            other()
        return looked(*given, **named)

    monkeypatch.setattr(commit_module, "last_summary", race)
