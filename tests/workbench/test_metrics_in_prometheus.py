"""A real Prometheus reads the metrics, answers each panel of the dashboard, and fires each alert."""

import json
import os
import re
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
import yaml
from kit.modules import tool
from kit.places import ROOT
from kit.waiting import wait_for

from upstream.conf.process_identity import Process
from upstream.conf.units import now_us
from upstream.sink.spec.maintenance_rules import MaintenanceResult
from upstream.workbench.exposition import text
from upstream.workbench.metrics import MetricsCollector
from upstream.workbench.processes import listen
from upstream.workbench.server import create_app
from upstream.workbench.watch import Watch

from .observed_table import ObservedTable

pytestmark = pytest.mark.server

S = 1_000_000
NOW = 1_700_000_000 * S
GRAFANA = ROOT / "workbench" / "grafana"
TOKEN = "a token"
_SAMPLE = re.compile(r"(\w+\{.*\}) (\S+)")


@pytest.fixture(scope="module")
def programs():
    try:
        return tool("prometheus").programs()
    except RuntimeError as error:
        pytest.skip(str(error))


def promtool(programs, *arguments, given=b""):
    done = subprocess.run([programs / "promtool", *arguments], input=given, capture_output=True, check=False)
    return (done.stdout + done.stderr).decode()


def watched(folder):
    watch = Watch([str(folder)], {})
    watch.refresh()
    return watch


def exposed(watch, at_us):
    return text(MetricsCollector(watch, 0).families(at_us))


def in_trouble(folder, monkeypatch):
    """A table in the state of each alert: such as a target missed, keys that wait longer, a batch that hangs."""
    table = ObservedTable(folder, target="p99 < 1 s")
    for at in range(4):
        behind = {"vehicles/1": 100.0 + at, "vehicles/2": 3.0}
        table.commit(NOW + at * S, behind, ages_s=(4.0,), pending=9, oldest_s=6.0, suspects=1)
    before = exposed(watched(table.sink.path), NOW + 4 * S)
    failed = MaintenanceResult(version=1, failed="no space left on the disk")
    monkeypatch.setattr("upstream.sink.commit.account.last_maintained", lambda _: failed)
    table.commit(
        NOW + 4 * S, {"vehicles/1": 104.0, "vehicles/2": 3.0}, ages_s=(4.0,), pending=9, oldest_s=7.0, suspects=3
    )
    table.plan(NOW - 1_000 * S, NOW - 1_001 * S)
    table.write_dead_letters(1)
    return before, exposed(watched(table.sink.path), NOW + 200 * S)


def out_of_reach(folder):
    table = ObservedTable(folder / "gone")
    table.commit(NOW)
    watch = watched(table.sink.path)
    table.sink.path.rename(folder / "elsewhere")
    return exposed(watch, NOW)


def healthy(folder):
    table = ObservedTable(folder)
    for at in range(4):
        table.commit(NOW + at * S, {"vehicles/1": 5.0, "vehicles/2": 4.0}, pending=2, oldest_s=0.5)
    table.hold_lease(now_us(), Process.of(os.getpid()))
    return exposed(watched(table.sink.path), NOW + 4 * S)


def series(exposition, table="table"):
    """The value of each series, of a table with this name."""
    lines = exposition.decode().replace('table="table"', f'table="{table}"').splitlines()
    return {
        name: float(value) for line in lines if line[0] != "#" for name, value in [_SAMPLE.fullmatch(line).groups()]
    }


def rules():
    return yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"][0]["rules"]


def test_each_alert_fires_once_in_its_state_and_none_for_a_healthy_table(tmp_path, programs, monkeypatch):
    """The series go from what is exposed before to what is exposed after in half an hour."""
    calm = series(healthy(tmp_path / "a"))
    before, after = map(series, in_trouble(tmp_path / "b", monkeypatch))
    lost = series(out_of_reach(tmp_path / "c"), "gone")
    steps = {name: (after[name] - value) / 30 for name, value in before.items() if name in after}
    cases = [
        ({name: f"{value}x30" for name, value in calm.items()}, []),
        (
            {name: f"{before[name]}{step:+.9f}x30" for name, step in steps.items()}
            | {name: f"{value}x30" for name, value in lost.items()},
            sorted(each["alert"] for each in rules()),
        ),
    ]
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in found.items()],
            "promql_expr_test": [
                {
                    "expr": 'sort(count by (alertname) (ALERTS{alertstate="firing"}))',
                    "eval_time": "29m",
                    "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in fired],
                }
            ],
        }
        for found, fired in cases
    ]
    (tmp_path / "tests.json").write_text(json.dumps({"rule_files": [str(GRAFANA / "alerts.yaml")], "tests": tests}))
    assert "SUCCESS" in promtool(programs, "test", "rules", str(tmp_path / "tests.json"))
    # Names and units are as they should be.
    assert promtool(programs, "check", "metrics", given=in_trouble(tmp_path / "d", monkeypatch)[1]) == ""


@contextmanager
def served(watch):
    """The application over HTTP, by its address."""
    listener = listen("127.0.0.1", 0)
    app = create_app(watch, token=TOKEN)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def panels():
    for panel in json.loads((GRAFANA / "dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "4s").replace("$table", ".+")
            yield f"{panel['title']}: {target['legendFormat']}", expression


def test_a_server_scrapes_each_form_and_answers_each_panel(tmp_path, programs):
    """One server asks for OpenMetrics; the other, which wants native histograms, for protobuf."""
    table = ObservedTable(tmp_path, target="p99 < 1 s")
    table.report_windows(1000, 30)
    begun = time.monotonic()

    def commit():
        # The first input partition gains on the clock.
        behind = {"vehicles/1": max(100.0 - 2 * (time.monotonic() - begun), 5.0), "vehicles/2": 3.0}
        table.commit(now_us(), behind, ages_s=(3.0, 4.0), pending=9, oldest_s=6.0, late=table.batches)

    commit()
    server = tool("prometheus").Prometheus
    with (
        served(Watch([str(table.sink.path)], {})) as address,
        server(tmp_path / "open", address, TOKEN) as plain,
        server(tmp_path / "native", address, TOKEN, "native-histograms") as native,
    ):
        missing = dict(panels())

        def answered():
            commit()
            for name, expression in list(missing.items()):
                if any(value != "NaN" for found in plain.query(expression) for value in [found["value"][1]]):
                    del missing[name]
            return not missing

        wait_for(answered, what=f"an answer to {missing}")
        counts = plain.query("upstream_staleness_seconds_count")
        assert all(each["metric"]["table"] == "table" for each in counts)
        wait_for(lambda: native.query("rate(upstream_staleness_seconds[4s])"), what="a native histogram")
        # All ages are 3 and 4 seconds; a bin is an eighth of an octave.
        [median] = native.query("histogram_quantile(0.5, upstream_staleness_seconds)")
        assert float(median["value"][1]) == pytest.approx(3, rel=0.1)
        [most] = native.query("histogram_quantile(1, upstream_staleness_seconds)")
        assert float(most["value"][1]) == pytest.approx(4, rel=0.1)
        for each in [*plain.scrapes(), *native.scrapes()]:
            assert (each["health"], each["lastError"]) == ("up", "")
