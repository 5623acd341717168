"""Registries to ask about: a checkpoint with the streams of :mod:`kit.continuous`."""

from pathlib import Path

from upstream.hosting.edits import record
from upstream.hosting.journal import Change, Journal, Settings
from upstream.hosting.registry import Registry

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
