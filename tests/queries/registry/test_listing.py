"""What people see: queries in their order, and texts by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.registries import COUNTS, FAST, begun, register

from upstream.conf.errors import OptionError
from upstream.queries.registry.changes import Change
from upstream.queries.registry.editing import record
from upstream.queries.registry.listing import listed, text_of


def test_queries_are_listed_in_the_order_of_registration(tmp_path: Path) -> None:
    checkpoint = begun(tmp_path)
    for name in ("z", "a", "m"):
        registry = register(checkpoint, name)
    assert listed(registry)["name"].to_list() == ["z", "a", "m"]
    registry = record(checkpoint, Change("fail", "z", reason="overflow", id=1))
    assert listed(registry).row(0) == ("z", COUNTS, 1.0, False, "overflow")
    assert record(checkpoint, Change("alter", "z", weight=2)).queries.keys() == registry.queries.keys()


def test_texts_are_found_by_name(tmp_path: Path) -> None:
    checkpoint = begun(tmp_path)
    record(checkpoint, Change("view", "fast", FAST))
    registry = register(checkpoint, "per-route")
    assert text_of("Per-Route", registry) == COUNTS
    assert text_of("FAST", registry) == "SELECT * FROM `fast`"
    assert text_of(FAST, registry) == FAST
    for word in ("per-rout", " fas "):
        with pytest.raises(OptionError, match="did you mean"):
            text_of(word, registry)
