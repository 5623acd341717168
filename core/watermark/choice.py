"""The watermark policies that readers choose from."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...conf.errors import OptionError
from ...conf.options import count_argument, duration_argument, word_argument
from .policies import PolicyName


@dataclasses.dataclass(frozen=True)
class Watermark:
    """A watermark policy: how far each input partition is complete. Made by one of the class's methods.

    Attributes
    ----------
    policy : str
        Its name, as in the source's option ``watermark``.
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

    Raises
    ------
    OptionError
        One of them makes no sense.

    Examples
    --------
    >>> us.Watermark.bounded("5 minutes").delay
    '5 minutes'
    >>> stream = us.read(
    ...     spark, "feed/", key="vehicle_id", event_time="timestamp", watermark=us.Watermark.adaptive(late=0.001)
    ... )
    """

    policy: PolicyName
    delay: str | None = None
    late: float | None = None
    rows: int | None = None
    max_jump: str | None = None
    confirmations: int | None = None

    def __post_init__(self) -> None:
        word_argument("policy", self.policy, PolicyName)
        for name, duration in (("delay", self.delay), ("max_jump", self.max_jump)):
            if duration is not None:
                duration_argument(name, duration)
        share: Any = self.late  # whatever was given
        if share is not None and not (isinstance(share, float) and 0 < share < 1):
            raise OptionError(f"late={share!r}", expected="the share of rows that may be late, between 0 and 1")
        for name, number, least in (("rows", self.rows, 0), ("confirmations", self.confirmations, 1)):
            if number is not None and count_argument(name, number, least=least) > 100_000:
                raise OptionError(f"{name}={number}", expected=f"a whole number from {least} to 100000")

    @classmethod
    def ordered(cls) -> Watermark:
        """Take each input partition to be in the order of time: the watermark is the newest time.

        Returns
        -------
        Watermark

        Examples
        --------
        >>> us.Watermark.ordered().policy
        'ordered'
        """
        return cls("ordered")

    @classmethod
    def bounded(cls, delay: str) -> Watermark:
        """Take no row to be further behind the newest than `delay`.

        Parameters
        ----------
        delay
            A duration, such as ``5 minutes``.

        Returns
        -------
        Watermark

        Raises
        ------
        OptionError
            `delay` is not a duration.

        Examples
        --------
        >>> us.Watermark.bounded("5 minutes").delay
        '5 minutes'
        """
        duration_argument("delay", delay)
        return cls("bounded", delay=delay)

    @classmethod
    def adaptive(cls, *, late: float = 0.001, first_delay: str = "10 minutes") -> Watermark:
        """Learn each input partition's disorder, so that a share of `late` rows comes too late.

        Parameters
        ----------
        late
            The share, between 0 and 1.
        first_delay
            The delay until a partition's disorder is known.

        Returns
        -------
        Watermark

        Raises
        ------
        OptionError
            One of them makes no sense.

        Examples
        --------
        >>> us.Watermark.adaptive(late=0.01, first_delay="1 minute").late
        0.01
        """
        duration_argument("first_delay", first_delay)
        return cls("adaptive", delay=first_delay, late=late)

    @classmethod
    def displaced(cls, rows: int) -> Watermark:
        """Take no row to be out of its place by more than some number of rows.

        Parameters
        ----------
        rows
            The number.

        Returns
        -------
        Watermark

        Raises
        ------
        OptionError
            The number is not from 0 to 100,000.

        Examples
        --------
        >>> us.Watermark.displaced(100).rows
        100
        """
        return cls("displaced", rows=rows)

    @classmethod
    def embedded(cls) -> Watermark:
        """Take the watermark from punctuation among the rows: rows without a key, whose time is the watermark.

        Returns
        -------
        Watermark

        Examples
        --------
        >>> us.Watermark.embedded().policy
        'embedded'
        """
        return cls("embedded")

    @classmethod
    def arrival(cls) -> Watermark:
        """Stamp rows with their arrival in a new column, the event time; the watermark is the clock.

        Returns
        -------
        Watermark

        Examples
        --------
        >>> us.Watermark.arrival().policy
        'arrival'
        """
        return cls("arrival")

    @classmethod
    def none(cls) -> Watermark:
        """Promise nothing: for tables of the newest rows, which need no watermark.

        Returns
        -------
        Watermark

        Examples
        --------
        >>> us.Watermark.none().policy
        'none'
        """
        return cls("none")

    def guarded(self, *, max_jump: str | None = None, confirmations: int | None = None) -> Watermark:
        """Return the same policy with another guard against times that are wrong.

        Parameters
        ----------
        max_jump
            How far beyond the newest time a row is believed at once, such as ``1 day``.
        confirmations
            How many rows in succession have to lie beyond it to be believed.

        Returns
        -------
        Watermark

        Raises
        ------
        OptionError
            One of them makes no sense.

        Examples
        --------
        >>> us.Watermark.ordered().guarded(max_jump="1 day").max_jump
        '1 day'
        """
        return dataclasses.replace(self, max_jump=max_jump, confirmations=confirmations)

    def options(self) -> dict[str, str]:
        """Return the options of the source that select it, for ``spark.readStream.format("upstream")``.

        Returns
        -------
        dict of str to str

        Examples
        --------
        >>> us.Watermark.bounded("5 minutes").options()
        {'watermark': 'bounded', 'watermarkDelay': '5 minutes'}
        """
        given = {
            "watermark": self.policy,
            "watermarkDelay": self.delay,
            "targetLate": self.late,
            "watermarkDisplacement": self.rows,
            "maxJump": self.max_jump,
            "confirmations": self.confirmations,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


def check_watermark(value: Any) -> Watermark | None:
    """Return the argument `watermark`, or None, or raise an OptionError for another type."""
    if value is None or isinstance(value, Watermark):
        return value
    raise OptionError(
        f"watermark={value!r}",
        expected="what one of Watermark's methods makes",
        hint="for a delay write Watermark.bounded('5 minutes')",
    )
