"""Plans of nothing that runs."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import LongType, StructField, StructType

from upstream.plan.nodes import Filter, InputRows, Intake, Map, Node, Queue, Reorder, Transform, Window

SCHEMA = StructType([StructField("k", LongType()), StructField("ms", LongType())])
FIXED = (("k",), "ms", SCHEMA)


@dataclasses.dataclass(frozen=True)
class Spec:
    """Of nothing that runs."""

    name: str = "x"
    policy: str = "fifo"

    def identity(self) -> Mapping[str, str]:
        return {"key": "k", "name": self.name}

    def changeable(self) -> Mapping[str, str]:
        return {"policy": self.policy}


def rows() -> Node:
    return InputRows(*FIXED, frame=None)


def window(before: Node, **more: Any) -> Window:
    return Window(*FIXED, inputs=(before,), **{"specification": Spec(), "shards": 4, **more})


def queue(before: Node, **more: Any) -> Queue:
    return Queue(*FIXED, inputs=(before,), specification=Spec(), options={}, shards=4, **more)


def union(*before: Node, **more: Any) -> Reorder:
    return Reorder(*FIXED, inputs=before, specification=Spec(), name="union", **{"shards": 4, **more})


def ordered(before: Node, **more: Any) -> Reorder:
    return Reorder(*FIXED, inputs=(before,), specification=Spec(), name="ordered", **{"shards": 4, **more})


def intake(name: str, **more: Any) -> Intake:
    return Intake(
        *FIXED, **{"specification": Spec(), "frame": None, "columns": {}, "name": name, "promises": True, **more}
    )


def distinct(before: Node, **more: Any) -> Reorder:
    return Reorder(*FIXED, inputs=(before,), specification=Spec(), name="distinct", **{"shards": 4, **more})


def where(before: Node) -> Transform:
    return Transform(*FIXED, inputs=(before,), step=Filter("v > 0"))


def mapped(before: Node) -> Map:
    return Map(*FIXED, inputs=(before,), says="map", step=lambda batches: batches)
