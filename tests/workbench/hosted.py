"""A job that hosts queries, without Spark: a registry, its last batch, reports, and the workbench beside it."""

from pathlib import Path

from kit.registries import COUNTS, begun, planned, register, report
from starlette.testclient import TestClient

from upstream.hosting.messages import offset_of
from upstream.hosting.reports import NO_TIMES, HostTimes, QueryReport
from upstream.workbench.server import create_app
from upstream.workbench.watch import Watch

S = 1_000_000
NOW_US = 1_700_000_000 * S
HEADERS = {"Authorization": "Bearer token"}


def page(*places: Path) -> TestClient:
    """The workbench over some places, as a client that may change things."""
    watch = Watch([str(each) for each in places], {}, clock_us=lambda: NOW_US)
    watch.refresh()
    app = create_app(watch, token="token", hosts=["testserver"])
    return TestClient(app, headers=HEADERS, raise_server_exceptions=False)


def state(bound_s: float, received: int = 0, late: int = 0) -> dict[str, int]:
    return {"bound": int(bound_s * S), "received": received, "late": late, "suspects": 0}


def source(silent_s: float = 0.0, **states: dict[str, int]) -> dict[str, object]:
    """The offset of a source; its first partition has been silent for so long."""
    heard = dict.fromkeys(states, NOW_US)
    heard[next(iter(states))] -= int(silent_s * S)
    return {"version": 1, "connector": "files", "progress": states, "heard": heard, "ended": [], "punctuation": {}}


class Job:
    """A job of two queries over `buses`, of which the last batch is 4."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = Path(begun(folder, str(folder / "lake")))
        register(str(self.checkpoint), "per_route", weight=2)
        register(str(self.checkpoint), "fast", "SELECT vehicle_id, speed FROM LATEST(buses) WHERE speed > 10")
        self.plan()

    def plan(self, batch: int = 4, version: int = 2, silent_s: float = 34.0) -> None:
        buses = source(silent_s, **{"feed/2": state(70, 5), "feed/1": state(100, 20, 3)})
        others = [source(a=state(100)) for _ in range(2)]
        # Spark numbers the sources by the streams' names: buses, quote, trade.
        planned(self.checkpoint, batch, buses, *others, offset_of(str(self.checkpoint), version))

    def report(self, times: HostTimes = NO_TIMES, **queries: QueryReport) -> None:
        report(self.checkpoint, times, **queries)


__all__ = ["COUNTS", "HEADERS", "NOW_US", "Job", "S", "page", "planned", "register", "source", "state"]
