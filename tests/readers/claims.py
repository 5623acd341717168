"""What the page on readers claims, held against a reader."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .matrix import Empties, Refused, Rounds, ShowsDeleted, claim_of
from .tables import EMPTY, Rows, known, rows_of, same, to_milliseconds


def check(reader: str, feature: str, read: Callable[[], Rows]) -> None:
    """The reader does what the page says."""
    claim = claim_of(reader, feature)
    if isinstance(claim, Refused):
        with pytest.raises(Exception, match=claim.pattern):
            read()
        return
    found, wanted = read(), rows_of(feature)
    if isinstance(claim, ShowsDeleted):
        assert not same(found, wanted)
        assert same(known(found, wanted), wanted)
        return
    if isinstance(claim, Empties):
        assert not same(found, wanted)
        wanted = [{name: EMPTY.get(name) if value is None else value for name, value in row.items()} for row in wanted]
    if isinstance(claim, Rounds):
        assert not same(found, wanted)
        wanted = [{**row, "at": to_milliseconds(row["at"])} for row in wanted]
    assert same(found, wanted), f"{found[:9]}\nwhere these were written:\n{wanted[:9]}"
