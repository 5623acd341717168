"""Steps on Arrow batches that run in the task that reads the rows, passed to the source as an option."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...conf.options import internal_option

STEPS_OPTION = "upstreamSteps"
"""An internal option: its value is a program."""

ArrowStep = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclasses.dataclass(frozen=True)
class SourceSteps:
    """The steps that the source runs on a task's rows before Spark sees them."""

    rows: str  # the schema of the source's own rows, as Spark's JSON
    schema: str  # the schema of the result, as Spark's JSON
    program: str  # pickled until `step` is called: planning processes need none of its imports
    archives: Sequence[str] = ()  # job files that it may import from; Spark puts them on no source's path
    stream: str = ""  # the hosted stream whose rows the program sends by the task's lane; empty if it has no lanes

    @classmethod
    def of(cls, rows: str, schema: str, step: ArrowStep, archives: Sequence[str] = ()) -> SourceSteps:
        """Return steps with `step` as their program.

        It raises an exception of any kind if the step cannot be pickled. Spark supports broadcast variables and
        accumulators only in its own functions.
        """
        return cls(rows, schema, base64.b64encode(_pickled(step)).decode(), tuple(archives))

    def to_option(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    def step(self) -> ArrowStep:
        """Unpickle the program, with the job's files on the path."""
        if self.archives:
            from pyspark import SparkFiles

            paths = [SparkFiles.get(name) for name in self.archives]
            sys.path[1:1] = [path for path in paths if path not in sys.path]
        return pickle.loads(base64.b64decode(self.program))  # noqa: S301 the driver of the same job wrote it


def parse_steps(given: Mapping[str, str]) -> tuple[SourceSteps | None, dict[str, str]]:
    """Return the steps among a source's options, or None, and the other options."""
    return internal_option(
        given, STEPS_OPTION, _parsed, "the operators tell the source what to run where the rows are read"
    )


def _parsed(value: str) -> SourceSteps:
    fields: Any = json.loads(value)
    if not all(
        isinstance(each, str)
        for each in (fields["rows"], fields["schema"], fields["program"], fields["stream"], *fields["archives"])
    ):
        raise TypeError
    return SourceSteps(**fields)


def _pickled(step: ArrowStep) -> bytes:
    from pyspark import Accumulator
    from pyspark.cloudpickle import CloudPickler
    from pyspark.core.broadcast import Broadcast

    class Pickler(CloudPickler):
        def persistent_id(self, obj: object) -> None:
            if isinstance(obj, (Accumulator, Broadcast)):
                raise pickle.PicklingError(f"a source is not given a {type(obj).__name__}")

    written = io.BytesIO()
    Pickler(written).dump(step)
    return written.getvalue()
