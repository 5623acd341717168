"""Steps moved to where the rows are read.

Between a source and a step in Python, Spark turns each row from Arrow into its own form and back, which takes longer than reading and
aggregating it. Where nothing is between them but a choice of columns, the source runs the step itself. See docs/decisions/0013.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .source_steps import STEPS_OPTION, ArrowStep, SourceSteps, steps_told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["at_source"]

_SOURCE = "upstream"
_MOST_BYTES = 200_000
"""Longer programs (a map that carries a model) are not told as an option, which is sent anew with each task."""


def at_source(df: DataFrame, step: ArrowStep, schema: StructType) -> DataFrame | None:
    """The step's result, computed by the source that `df` is read from.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
    step : callable
        From batches of `df` to batches of `schema`.
    schema : pyspark.sql.types.StructType

    Returns
    -------
    pyspark.sql.DataFrame or None
        None if something else than a choice of columns is between, so that Spark has to see the rows.
    """
    relation = _relation(df)
    if relation is None:
        return None
    before, options = steps_told(dict(relation.extraOptions().asCaseSensitiveMap()))
    names, rows = list(df.columns), relation.schema().json() if before is None else before.rows
    earlier = None if before is None else before.step()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if earlier is not None:
            batches = earlier(batches)
        return step(batch.select(names) for batch in batches)

    told = SourceSteps.of(rows, schema.json(), run).told()
    if len(told) > _MOST_BYTES:
        return None
    return df.sparkSession.readStream.format(_SOURCE).options(**options, **{STEPS_OPTION: told}).load()


def _relation(df: DataFrame) -> Any:
    """The source in a plan that has nothing else but columns chosen from it; None in any other plan."""
    known: Any = getattr(df, "_jdf", None)
    if known is None:
        return None  # another process, by Spark Connect, has the plan
    plan = known.queryExecution().analyzed()
    while plan.getClass().getSimpleName() == "Project" and _chooses(plan.projectList()):
        plan = plan.child()
    if plan.getClass().getSimpleName() != "StreamingRelationV2" or plan.sourceName() != _SOURCE:
        return None
    # A source that the user named in the checkpoint keeps its name, which a new one would not have.
    return plan if plan.sourceIdentifyingName().getClass().getSimpleName().startswith("Unassigned") else None


def _chooses(columns: Any) -> bool:
    """Whether a projection's columns are the source's own, under their own names."""
    return all(
        columns.apply(number).getClass().getSimpleName() == "AttributeReference" for number in range(columns.size())
    )
