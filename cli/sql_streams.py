"""Streams in one word for the shell: ``buses=feed/;key=vehicle_id;time=timestamp``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..conf.errors import OptionError
from .sources import source_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from ..api.stream import UpdateStream

__all__ = ["StreamChoice"]

_FORM = "NAME=PATH;key=COLUMN;time=COLUMN, such as buses=feed/;key=vehicle_id;time=timestamp"

# Arguments of `read` that are no options of the source.
_NOT_OPTIONS = ("path", "event_time", "watermark", "watermark_delay", "coalesce")


@dataclass(frozen=True)
class StreamChoice:
    """A stream of the command line."""

    name: str  # its name in queries
    path: str | None  # a file, a folder or a pattern; None for a connector that needs none
    key: tuple[str, ...]
    time: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # of the source

    @classmethod
    def parse(cls, text: str) -> StreamChoice:
        """Parse a stream: its name, its source, then ``key``, ``time`` and options of the source.

        The source is a path, or an address as ``upstream latest --from`` takes it. Commas separate several key columns.
        """
        first, *others = (each.strip() for each in text.split(";"))
        name, equals, source = first.partition("=")
        if not equals or not name.strip() or not source.strip():
            raise OptionError(f"--stream {text!r}", expected=_FORM)
        given: dict[str, str] = {}
        for each in filter(None, others):
            option, equals, value = (part.strip() for part in each.partition("="))
            if not equals or not option or not value:
                raise OptionError(f"--stream {text!r} has {each!r} after a semicolon", expected="OPTION=VALUE")
            if option.lower() in _NOT_OPTIONS:
                raise OptionError(
                    f"--stream {text!r} has {option}",
                    expected="key, time, and options of the source",
                    hint="progress=… and progressDelay=… choose the watermark; `upstream options` lists all",
                )
            if option.lower() in {other.lower() for other in given}:
                raise OptionError(f"--stream {text!r} has {option} twice", expected="each option once")
            given[option] = value
        key = tuple(each.strip() for each in given.pop("key", "").split(",") if each.strip())
        if not key:
            raise OptionError(f"--stream {text!r} has no key", expected=_FORM)
        path, implied = source_options(source.strip())
        return cls(name.strip(), path, key, given.pop("time", None), {**implied, **given})

    def read(self, spark: SparkSession) -> UpdateStream:
        from ..api.read import read

        options: dict[str, Any] = dict(self.options)
        return read(spark, self.path, key=self.key, event_time=self.time, **options)
