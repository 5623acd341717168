"""Registries to ask about: a checkpoint with the streams of :mod:`kit.continuous`."""

import dataclasses
import json
from pathlib import Path

from upstream.hosting.edits import record
from upstream.hosting.journal import Change, Journal, Settings
from upstream.hosting.registry import Registry, registry_now
from upstream.hosting.reports import NO_TIMES, HostReport, HostTimes, QueryReport

from .continuous import BUSES, DOMAINS, QUOTE, TRADE

STREAMS = (TRADE, QUOTE, BUSES, DOMAINS)
COUNTS = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"
FAST = "SELECT vehicle_id, route_id, speed FROM LATEST(buses) WHERE speed > 10"
OF_FAST = "SELECT route_id, COUNT(*) AS n FROM fast GROUP BY route_id"


def begun(path: Path, to: str = "/lake") -> str:
    """Begin a registry in a checkpoint, and return the checkpoint."""
    checkpoint = str(path / "cp")
    Journal(checkpoint).write_settings(Settings(to, 8, STREAMS))
    return checkpoint


def register(checkpoint: str, name: str, text: str = COUNTS, **more: object) -> Registry:
    """Register a query."""
    return record(checkpoint, Change("create", name, text, **more))  # type: ignore[arg-type]


def planned(checkpoint: Path, batch: int, *offsets: dict[str, object]) -> None:
    """Journal a batch as Spark does."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    if not (checkpoint / "metadata").exists():
        (checkpoint / "metadata").write_text(json.dumps({"id": "host"}))
    lines = ["v1", "{}", *(json.dumps(each) for each in offsets)]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def report(checkpoint: Path, times: HostTimes = NO_TIMES, **queries: QueryReport) -> None:
    """Write the host's report after batch 4."""
    registry = registry_now(str(checkpoint))
    found = {registry.queries[name].id: dataclasses.asdict(each) for name, each in queries.items()}
    values = {**dataclasses.asdict(HostReport(4, times=times)), "queries": found}
    (checkpoint / "queries" / "report.json").write_text(json.dumps(values))
