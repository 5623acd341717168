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

__all__ = ["STEPS_OPTION", "ArrowStep", "SourceSteps", "parse_steps"]

STEPS_OPTION = "upstreamSteps"
"""Not for users: what it holds is a program."""

ArrowStep = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclasses.dataclass(frozen=True)
class SourceSteps:
    """What the source does with the rows of a task before Spark sees them.

    Attributes
    ----------
    rows : str
        The schema of the source's own rows, as Spark's JSON.
    schema : str
        Of what leaves, in the same way.
    program : str
        From batches of the one to batches of the other. It is a text until :meth:`step` is asked for, since the
        driver's processes that plan the batches would import a lot for nothing.
    archives : sequence of str
        Names of the job's files that the program may import from. Spark puts them on the path of its own Python
        functions, not of sources.
    """

    rows: str
    schema: str
    program: str
    archives: Sequence[str] = ()

    @classmethod
    def of(cls, rows: str, schema: str, step: ArrowStep, archives: Sequence[str] = ()) -> SourceSteps:
        """Return steps whose program is the given step.

        Raises
        ------
        Exception
            Of any kind: the step cannot be pickled, or holds a broadcast variable or an accumulator, which Spark
            maintains for its own Python functions only.
        """
        return cls(rows, schema, base64.b64encode(_pickled(step)).decode(), tuple(archives))

    def to_option(self) -> str:
        """Return the value of the option."""
        return json.dumps(dataclasses.asdict(self))

    def step(self) -> ArrowStep:
        """Unpickle the program, with the job's files on the path."""
        if self.archives:
            from pyspark import SparkFiles

            paths = [SparkFiles.get(name) for name in self.archives]
            sys.path[1:1] = [path for path in paths if path not in sys.path]
        return pickle.loads(base64.b64decode(self.program))  # noqa: S301 the driver of the same job wrote it


def parse_steps(given: Mapping[str, str]) -> tuple[SourceSteps | None, dict[str, str]]:
    """Return the steps among a source's options, if there are any, and its other options.

    Raises
    ------
    OptionError
        The option is there, and nothing of ours wrote it.
    """
    return internal_option(
        given, STEPS_OPTION, _parsed, "the operators tell the source what to run where the rows are read"
    )


def _parsed(value: str) -> SourceSteps:
    fields: Any = json.loads(value)
    if not all(
        isinstance(each, str) for each in (fields["rows"], fields["schema"], fields["program"], *fields["archives"])
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
