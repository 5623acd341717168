"""From a scenario's configuration to the source's options, the operators and the sink."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from upstream.conf.errors import SchemaError
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, TIMESTAMP
from upstream.operators.aggregates.functions import count, sum_
from upstream.operators.queue.queue import ShardPlan
from upstream.operators.reorder.shard import ReorderPlan
from upstream.operators.windows.kinds import SlidingWindows
from upstream.operators.windows.shards import plan as completeness
from upstream.operators.windows.shards.plan import WindowPlan
from upstream.operators.windows.shards.results import result_schema
from upstream.plan.nodes import check_complete

from .inputs import TOPIC, Inputs
from .join_stages import LatestJoinStage, TableStage, join_plan, join_stage, latest_plan
from .query import AnyStage
from .scenario import Action
from .sinks import NoTable, Table, TwoWrites
from .stages import Stage, append_windows, queue_stage, reorder_stage, window_stage

ROWS = pa.schema(
    [("k", pa.int64()), ("t", pa.int64()), ("v", pa.string()), ("n", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]
)
AGGREGATES = {"rows": count(), "total": sum_("n")}


class RefusedError(Exception):
    """The product refuses what would be wrong. That is right, and the end of a scenario."""


def rows_schema(config: dict[str, Any]) -> pa.Schema:
    """Of what the source gives; stamped on entry, the time is one."""
    stamped = config["progress"] == "arrival"
    return ROWS.set(1, pa.field("t", TIMESTAMP)) if stamped else ROWS


def source_schema(config: dict[str, Any]) -> StructType:
    return from_arrow_schema(rows_schema(config))


def source_options(config: dict[str, Any], inputs: Inputs, actions: Sequence[Action]) -> dict[str, str]:
    """As a user gives them."""
    given = {
        "connector": config["source"],
        "key": "k",
        "eventTime": "t",
        "watermark": config["progress"],
        "confirmations": str(config["confirmations"]),
        "minPartitions": "2",
    }
    if config["progress"] != "arrival":
        given["timeFormat"] = "epoch_us"
    if config["progress"] == "bounded":
        given["watermarkDelay"] = f"{config['delay']} ms"
    if config["progress"] == "displaced":
        given["watermarkDisplacement"] = str(config["displacement"])
    if config["source"] == "kafka":
        given |= {"kafka.bootstrap.servers": inputs.address, "subscribe": TOPIC}
        if config.get("ends"):
            # No part of the actions has other ends than those it comes to.
            ends = {
                str(feed): sum(len(given[1]) for word, *given in actions if word == "rows" and given[0] == feed)
                for feed in config["ends"]
            }
            given["endingOffsets"] = json.dumps({TOPIC: ends})
        if config.get("lossy"):
            given["failOnDataLoss"] = "false"
    else:
        given |= {"path": inputs.path, "fileFormat": "json", "feeds": "file", "splitBytes": "100"}
    return given


def stages_of(config: dict[str, Any], checkpoint: Path) -> list[AnyStage]:
    """The operators, one after the other."""
    made: list[AnyStage] = []
    schema = rows_schema(config)
    before: WindowPlan | None = None
    for number, stage in enumerate(config["stages"]):
        shards = stage.get("shards", 2)
        if stage["op"] == "windows":
            plan = _window_plan(stage, schema, before, shards)
            if before is not None and config.get("fused"):
                fused = made[-1]
                assert isinstance(fused, Stage)
                append_windows(fused, number, plan, checkpoint)
            else:
                made.append(window_stage(number, plan, checkpoint))
            before, schema = plan, result_schema(plan)
        elif stage["op"] == "queue":
            queue = ShardPlan(("k",), "t", shards, stage["policy"], cost_s=1e-6, page_slots=4)
            made.append(queue_stage(number, queue, checkpoint))
        elif stage["op"] == "join":
            made.append(join_stage(number, join_plan(stage, schema), checkpoint))
        elif stage["op"] == "table join":
            made.append(TableStage(number, stage["how"], schema, checkpoint))
        elif stage["op"] == "newest join":
            made.append(LatestJoinStage(latest_plan(shards, schema), checkpoint))
        else:
            held = ReorderPlan("ordered", ("k",), ("k",), "t", hold=True, shards=shards, time_format="epoch_us")
            made.append(reorder_stage(number, held, checkpoint))
    return made


def _window_plan(stage: dict[str, Any], schema: pa.Schema, before: WindowPlan | None, shards: int) -> WindowPlan:
    size, slide = stage["size"] * 1000, stage["slide"] * 1000
    time, time_format, aggregates = "t", "epoch_us", AGGREGATES
    if before is not None:
        try:
            check_complete(completeness.left_out_by_windows(before))
        except SchemaError as error:
            raise RefusedError(str(error)) from None
        time = "window_time" if "window_time" in schema.names else "window_end"
        aggregates = {"windows": count(), "total": sum_("rows")}
        time_format = None
    elif schema.field("t").type == TIMESTAMP:
        time_format = None
    windows = SlidingWindows(size, slide)
    return WindowPlan(
        ("k",), time, time_format, "UTC", windows, aggregates, stage["emit"], stage["method"], 0, shards, schema
    )


def sink_of(config: dict[str, Any], folder: Path) -> Any:
    """Where the last operator's rows go."""
    sink = config["sink"]
    if sink["kind"] == "none":
        return NoTable()
    options = {"key": "k", "buckets": str(sink["buckets"]), "engine": sink["engine"]}
    if [stage["op"] for stage in config["stages"]] == ["newest join"]:  # its results are in the order of arrival
        return Table(folder, options, latest_plan(1, ROWS).schema, framed=sink["framed"])
    options["eventTime"] = "t"
    if sink["kind"] == "two writes":
        return TwoWrites(folder, options, ROWS, framed=False)
    return Table(folder, options, rows_schema(config), framed=sink["framed"])
