"""A piece of a recording: neighbouring rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["RecordedPart"]

Int64s = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class RecordedPart:
    """Neighbouring rows as they were read.

    Attributes
    ----------
    begin : int
        No row or malformed row of the piece has a smaller number, and none before it has this or a larger one.
    rows : pyarrow.Table
        In file order.
    numbers : int64 array of length rows
        Increasing.
    malformed : sequence of mapping
        What was reported in between.
    """

    begin: int
    rows: pa.Table
    numbers: Int64s
    malformed: Sequence[Mapping[str, Any]]
