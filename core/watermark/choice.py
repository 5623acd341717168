"""How far a feed is complete, as its reader chooses it."""

from __future__ import annotations

import dataclasses

from ...conf.errors import OptionError
from ...conf.units import parse_duration_us
from .policies import PolicyName

__all__ = ["Watermark"]


@dataclasses.dataclass(frozen=True)
class Watermark:
    """A watermark policy, made by one of the class's methods.

    Attributes
    ----------
    policy : str
        Its name, as of the source's option ``progress``.
    delay : str or None
        How far a row may be behind the newest.
    late : float or None
        The share of rows that may be late.
    rows : int or None
        By how many rows a row may be out of its place.
    max_jump : str or None
        How far beyond the newest time a row is believed at once; an hour unless given.
    confirmations : int or None
        How many rows in succession have to lie beyond it to be believed; 5 unless given.

    Examples
    --------
    >>> upstream.Watermark.bounded("5 minutes")
    >>> upstream.Watermark.adaptive(late=0.001).guarded(max_jump="1 day")
    """

    policy: PolicyName
    delay: str | None = None
    late: float | None = None
    rows: int | None = None
    max_jump: str | None = None
    confirmations: int | None = None

    @classmethod
    def ordered(cls) -> Watermark:
        """Every feed is in the order of time: the watermark is the newest time."""
        return cls("ordered")

    @classmethod
    def bounded(cls, delay: str) -> Watermark:
        """No row is further behind the newest than `delay`, such as ``5 minutes``.

        Raises
        ------
        OptionError
            `delay` is no duration.
        """
        return cls("bounded", delay=_duration("delay", delay))

    @classmethod
    def adaptive(cls, *, late: float = 0.001, first_delay: str = "10 minutes") -> Watermark:
        """Learn each feed's disorder, so that a share of `late` rows comes too late.

        Parameters
        ----------
        late
            The share, between 0 and 1.
        first_delay
            The delay until a feed's disorder is known.

        Raises
        ------
        OptionError
            One of them makes no sense.
        """
        if not 0 < late < 1:
            raise OptionError(f"late={late}", expected="the share of rows that may be late, between 0 and 1")
        return cls("adaptive", delay=_duration("first_delay", first_delay), late=late)

    @classmethod
    def displaced(cls, rows: int) -> Watermark:
        """No row is out of its place by more than so many rows.

        Raises
        ------
        OptionError
            The number is not from 0 to 100,000.
        """
        if not 0 <= rows <= 100_000:
            raise OptionError(f"rows={rows}", expected="a whole number from 0 to 100000")
        return cls("displaced", rows=rows)

    @classmethod
    def embedded(cls) -> Watermark:
        """The feed sends punctuation among its rows: rows without a key, whose time is the watermark."""
        return cls("embedded")

    @classmethod
    def arrival(cls) -> Watermark:
        """Rows are stamped with their arrival in a new column, the event time; the watermark is the clock."""
        return cls("heartbeat")

    @classmethod
    def none(cls) -> Watermark:
        """Nothing is promised: for tables of the newest rows, which need no watermark."""
        return cls("latent")

    def guarded(self, *, max_jump: str | None = None, confirmations: int | None = None) -> Watermark:
        """Return the same policy with another guard against times that are wrong.

        Parameters
        ----------
        max_jump
            How far beyond the newest time a row is believed at once, such as ``1 day``.
        confirmations
            How many rows in succession have to lie beyond it to be believed.

        Raises
        ------
        OptionError
            One of them makes no sense.
        """
        if confirmations is not None and not 1 <= confirmations <= 100_000:
            raise OptionError(f"confirmations={confirmations}", expected="a whole number from 1 to 100000")
        jump = None if max_jump is None else _duration("max_jump", max_jump)
        return dataclasses.replace(self, max_jump=jump, confirmations=confirmations)

    def options(self) -> dict[str, str]:
        """Return the source's options that ask for it."""
        given = {
            "progress": self.policy,
            "progressDelay": self.delay,
            "targetLate": self.late,
            "progressDisplacement": self.rows,
            "maxJump": self.max_jump,
            "confirmations": self.confirmations,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


def _duration(name: str, value: str) -> str:
    try:
        parse_duration_us(value)
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f"{name}={value!r}", expected="a duration such as '10 minutes'") from None
    return value
