"""The columns that a queue keeps of each pending row, by location. The row itself is in pages of Arrow rows."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...conf.errors import OptionError
from ...core.rows.exact_integers import Int64s

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


@dataclasses.dataclass
class Usage:
    """Memory usage integrated over time, in locations times seconds (tr620 §7.3)."""

    allocated: float = 0.0  # of locations that held a row or could not be given to another key
    used: float = 0.0  # of locations that held a pending row
    paged: float = 0.0  # of all locations in held pages
    seconds: float = 0.0

    def add(self, seconds: float, *, allocated: int, used: int, paged: int) -> None:
        self.allocated += allocated * seconds
        self.used += used * seconds
        self.paged += paged * seconds
        self.seconds += seconds

    @property
    def average(self) -> float:
        """Locations allocated, on average over time."""
        return self.allocated / self.seconds if self.seconds else 0.0

    @property
    def effective(self) -> float:
        """The share of the allocated space that was in use, on average over time; 1 if nothing was ever allocated."""
        return self.used / self.allocated if self.allocated else 1.0


class OnDemandPages:
    """Fixed-size pages of locations, numbered ``page * slots + slot``.

    `stored` pages are read and written as a whole. `held` marks by page and slot the locations that hold a row. An
    empty page is released at once, and its number is used again by the next new page.
    """

    def __init__(self, slots: int, *, stored: bool = False) -> None:
        if slots < 1:
            raise OptionError(f"a page of {slots} slots", expected="at least 1 slot in a page")
        self.slots = slots
        self.stored = stored
        self.held: npt.NDArray[np.bool_] = np.zeros((0, slots), dtype=np.bool_)
        self._count: Int64s = np.zeros(0, dtype=np.int64)

    @property
    def used(self) -> int:
        """The number of locations that hold a row."""
        return int(self._count.sum())

    @property
    def capacity(self) -> int:
        """The number of locations in all pages, including released and unused ones."""
        return self.held.size

    def pages(self) -> Int64s:
        """Return the numbers of the pages that are held, increasing."""
        return np.flatnonzero(self._count)

    def of(self, locations: Int64s) -> Int64s:
        """Return the numbers of the pages that contain some locations, increasing."""
        return np.flatnonzero(np.bincount(locations // self.slots))

    def allocate(self, n: int) -> Int64s:
        """Find room for `n` rows: distinct locations, freed ones first, then new pages.

        In memory the fullest pages are filled first, so that those with few cells run empty. Stored pages cost the size
        of their contents, so the emptiest take new rows, and those more than half full stay as they are.
        """
        if n == 0:
            return np.empty(0, dtype=np.int64)
        most = self.slots // 2 if self.stored else self.slots - 1
        partly = np.flatnonzero((self._count > 0) & (self._count <= most))
        partly = partly[np.argsort(self._count[partly] if self.stored else -self._count[partly], kind="stable")]
        room = np.cumsum(self.slots - self._count[partly])
        chosen = partly[: int(np.searchsorted(room, n)) + 1]
        missing = n - (int(room[len(chosen) - 1]) if len(chosen) else 0)
        if missing > 0:
            chosen = np.concatenate([chosen, self._new(-(-missing // self.slots))])
        page, slot = np.nonzero(~self.held[chosen])
        page, slot = chosen[page[:n]], slot[:n]
        self.held[page, slot] = True
        np.add.at(self._count, page, 1)
        return page * self.slots + slot

    def free(self, locations: Int64s) -> Int64s:
        """Release locations, and return the pages that are released because they are empty now."""
        page = locations // self.slots
        self.held.reshape(-1)[locations] = False
        np.subtract.at(self._count, page, 1)
        touched = self.of(locations)
        return touched[self._count[touched] == 0]

    def restore(self, held: Int64s) -> None:
        pages = int(held.max()) // self.slots + 1 if len(held) else 0
        self.held = np.zeros((pages, self.slots), dtype=np.bool_)
        self.held.reshape(-1)[held] = True
        self._count = self.held.sum(axis=1).astype(np.int64)

    def _new(self, n: int) -> Int64s:
        unused = np.flatnonzero(self._count == 0)[:n]
        more = n - len(unused)
        if more <= 0:
            return unused
        first = len(self._count)
        # Room is made by halves, so that pages added one by one are not copied each time.
        grown = max(more, first // 2)
        self.held = np.concatenate([self.held, np.zeros((grown, self.slots), dtype=np.bool_)])
        self._count = np.concatenate([self._count, np.zeros(grown, dtype=np.int64)])
        return np.concatenate([unused, np.arange(first, first + more)])
