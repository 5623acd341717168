"""Metrics reach an OpenTelemetry collector: here a server that parses what it gets by OpenTelemetry's own messages."""

import queue
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from upstream.conf.errors import EnvironmentMissingError, OptionError
from upstream.conf.units import now_us
from upstream.workbench.otlp import export_metrics
from upstream.workbench.watch import Watch

from .observed_table import ObservedTable

CUMULATIVE = 2
EXPORTER = "opentelemetry.exporter.otlp.proto.http.metric_exporter"


@contextmanager
def collector():
    """A collector's address, and the requests that it gets."""
    requests: queue.Queue[tuple[str, ExportMetricsServiceRequest]] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.put((self.path, ExportMetricsServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_collector_gets_sums_levels_and_exponential_histograms(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    table, stop = ObservedTable(tmp_path), threading.Event()
    watch = Watch([str(table.sink.path.parent)], {})
    with collector() as (address, requests):
        begun_us = now_us()
        thread = export_metrics(watch, address, stop)
        table.commit(now_us(), ages_s=(0.0001, 0.3, 5.0), pending=7)
        watch.search()
        watch.refresh()
        found = {}
        while "upstream_commits" not in found:
            path, request = requests.get()
            [resource] = request.resource_metrics
            found = {each.name: each for scope in resource.scope_metrics for each in scope.metrics}
        stop.set()
        thread.join()
    assert path == "/v1/metrics"
    assert {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"] == "upstream"
    commits, pending, ages = (found[f"upstream_{name}"] for name in ("commits", "pending_keys", "staleness_seconds"))
    assert (commits.sum.is_monotonic, commits.sum.aggregation_temporality) == (True, CUMULATIVE)
    [point] = commits.sum.data_points
    assert [(each.key, each.value.string_value) for each in point.attributes] == [("table", "table")]
    assert point.as_int == 1
    assert begun_us <= point.start_time_unix_nano // 1000 <= point.time_unix_nano // 1000 <= now_us()
    assert (pending.unit, pending.gauge.data_points[0].as_int) == ("1", 7)
    assert (ages.unit, ages.exponential_histogram.aggregation_temporality) == ("s", CUMULATIVE)
    [point] = ages.exponential_histogram.data_points
    assert (point.count, point.zero_count, point.scale, point.max) == (3, 1, 3, 5.0)
    assert not point.HasField("min")
    held = [at + point.positive.offset for at, count in enumerate(point.positive.bucket_counts) if count]
    # Bucket i holds what is above 2^(i / 8) seconds, and not above 2^((i + 1) / 8).
    assert len(held) == 2
    assert all(2 ** (at / 8) < age <= 2 ** ((at + 1) / 8) for at, age in zip(held, (0.3, 5.0), strict=True))


@pytest.mark.parametrize(
    ("address", "interval", "package", "error"),
    [
        ("collector:4317", "50", None, OptionError),
        ("http://localhost:4318", "often", None, OptionError),
        (
            "http://localhost:4318",
            "50",
            "opentelemetry.exporter.otlp.proto.http.metric_exporter",
            EnvironmentMissingError,
        ),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_sent(tmp_path, monkeypatch, address, interval, package, error):
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", interval)
    if package is not None:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(error):
        export_metrics(Watch([str(tmp_path)], {}), address, threading.Event())
