"""Steps on Arrow batches that run in the task that reads the rows, told to the source by an option of its own."""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

__all__ = ["STEPS_OPTION", "ArrowStep", "SourceSteps", "steps_told"]

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
        From batches of the one to batches of the other. It is a text until :meth:`step` is asked for, since the driver's processes
        that plan the batches would import a lot for nothing.
    """

    rows: str
    schema: str
    program: str

    @classmethod
    def of(cls, rows: str, schema: str, step: ArrowStep) -> SourceSteps:
        """With a step as its program."""
        from pyspark import cloudpickle

        return cls(rows, schema, base64.b64encode(cloudpickle.dumps(step)).decode())

    def told(self) -> str:
        """The value of the option."""
        return json.dumps(dataclasses.asdict(self))

    def step(self) -> ArrowStep:
        """The program."""
        return pickle.loads(base64.b64decode(self.program))  # noqa: S301 the driver of the same job wrote it


def steps_told(given: Mapping[str, str]) -> tuple[SourceSteps | None, dict[str, str]]:
    """The steps among a source's options, if there are any, and its other options."""
    others = {name: value for name, value in given.items() if name.lower() != STEPS_OPTION.lower()}
    found = [value for name, value in given.items() if name not in others]
    return (SourceSteps(**json.loads(found[0])) if found else None), others
