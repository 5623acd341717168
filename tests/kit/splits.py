"""Rows in parts, cut where Hypothesis says: batches of a stream, tasks of a batch."""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


def split(data: st.DataObject, rows: Sequence[T]) -> list[list[T]]:
    """Up to four parts, some of them empty."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    return [list(rows[start:end]) for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
