"""A part of a recording."""

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
    """Neighbouring rows of a recording, as they were read."""

    begin: int  # all numbers in the part are at least this; all before it are smaller
    rows: pa.Table
    numbers: Int64s  # increasing
    malformed: Sequence[Mapping[str, Any]]  # reports in between
