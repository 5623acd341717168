"""The columns that a queue keeps of each pending row, by location. The row itself is in pages of Arrow rows."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["PENDING", "RESTING", "SHED", "Cells", "Updates"]

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PENDING, RESTING, SHED = 0, 1, 2
"""A cell's state: it waits for service; it was served, and may not be again before `ready_at_us`; it was dropped by
random shedding, and only keeps the time since which its key is stale."""


@dataclasses.dataclass(frozen=True)
class Updates:
    """A batch of arriving rows, in the order of arrival."""

    keys: object  # key numbers, or key columns with numbers, as the queue's index requires
    time: Int64s | None  # event times in microseconds; None if arrival alone decides which row is newer
    arrival: Int64s  # in microseconds
    first_arrival: Int64s | None = None  # oldest arrival that each row represents; None if no rows were coalesced
    covered: Int64s | None = None  # updates that each row represents; None if no rows were coalesced
    weight: Floats | None = None  # factor of a key's staleness; None is 1
    interval_us: Int64s | None = None  # the key's least time between two results; None is 0

    @property
    def numbers(self) -> Int64s:
        assert isinstance(self.keys, tuple)
        return self.keys[1]

    def take(self, which: npt.NDArray[np.bool_]) -> Updates:
        """Return some of the rows, by a mask; the keys are columns with numbers."""
        assert isinstance(self.keys, tuple)
        columns, numbers = self.keys
        mask = pa.array(which)
        return Updates(
            ([column.filter(mask) for column in columns], numbers[which]),
            None if self.time is None else self.time[which],
            self.arrival[which],
            None if self.first_arrival is None else self.first_arrival[which],
            None if self.covered is None else self.covered[which],
            None if self.weight is None else self.weight[which],
            None if self.interval_us is None else self.interval_us[which],
        )


@dataclasses.dataclass
class Cells:
    """Columns of one length, a row for each location. The order of service is that of `place`, then of `turn`."""

    number: Int64s
    serial: Int64s  # number of the row in the order of arrival
    turn: Int64s  # serial of the row that took the place
    place: Int64s
    time: Int64s
    arrival: Int64s
    first_arrival: Int64s
    covered: Int64s
    interval_us: Int64s
    ready_at_us: Int64s
    weight: Floats
    state: npt.NDArray[np.int8]

    @classmethod
    def empty(cls, n: int = 0) -> Cells:
        """Return room for `n` rows, all zero."""
        return cls(**{field.name: np.zeros(n, dtype=_DTYPES.get(field.name, np.int64)) for field in _FIELDS})

    def __len__(self) -> int:
        return len(self.number)

    def take(self, locations: Int64s | npt.NDArray[np.bool_]) -> Cells:
        return Cells(**{field.name: getattr(self, field.name)[locations] for field in _FIELDS})

    def put(self, locations: Int64s | slice, rows: Cells) -> None:
        for field in _FIELDS:
            getattr(self, field.name)[locations] = getattr(rows, field.name)

    def grown(self, n: int) -> Cells:
        """Return the same rows with room for at least `n`."""
        if n <= len(self):
            return self
        more = Cells.empty(n + n // 2)  # memory that nobody has written to costs nothing yet
        for field in _FIELDS:
            getattr(more, field.name)[: len(self)] = getattr(self, field.name)
        return more

    def to_bytes(self) -> bytes:
        """Return a binary value: each column's least value and the differences to it, in as few bytes as they need."""
        heads, bodies = [struct.pack("<q", len(self))], []
        for field in _FIELDS:
            # A weight is stored by its bits: all are the same, or none can be spared.
            column = getattr(self, field.name)
            column = column.view(np.int64) if field.name == "weight" else column.astype(np.int64, copy=False)
            low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
            width = next(width for width in _WIDTHS if high - low < 1 << 8 * width)
            low = 0 if width == 8 else low
            heads.append(_COLUMN.pack(low, width))
            if width:
                bodies.append((column - low).astype(f"<{'i' if width == 8 else 'u'}{width}").tobytes())
        return b"".join(heads + bodies)

    @classmethod
    def from_bytes(cls, value: bytes | bytearray) -> Cells:
        (n,) = struct.unpack_from("<q", value)
        at = 8 + _COLUMN.size * len(_FIELDS)
        columns: dict[str, npt.NDArray[np.generic]] = {}
        for place, field in enumerate(_FIELDS):
            low, width = _COLUMN.unpack_from(value, 8 + _COLUMN.size * place)
            if width:
                column = np.frombuffer(value, f"<{'i' if width == 8 else 'u'}{width}", n, at).astype(np.int64)
                column += low
            else:
                column = np.full(n, low, dtype=np.int64)
            columns[field.name] = (
                column.view(np.float64)
                if field.name == "weight"
                else column.astype(_DTYPES.get(field.name, np.int64), copy=False)
            )
            at += n * width
        return cls(**columns)  # pyright: ignore[reportArgumentType]


_DTYPES: dict[str, type] = {"weight": np.float64, "state": np.int8}
_FIELDS = dataclasses.fields(Cells)

_COLUMN = struct.Struct("<qB")
_WIDTHS = (0, 1, 2, 4, 8)
