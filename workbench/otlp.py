"""Export of the metrics to an OpenTelemetry collector, by OTLP over HTTP."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..conf.errors import OptionError, needs_extra
from ..conf.units import now_us
from ..core.feedback.ages import Ages
from .exposition import BUCKETS_SCHEMA, MetricFamily, bin_runs
from .metrics import MetricsCollector

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

    from .watch import Watch

__all__ = ["export_metrics", "otlp_data"]

_PATH = "/v1/metrics"
_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_INTERVAL_MS = "60000"
_UNITS = {"seconds": "s", "bytes": "By"}
_NS = 1_000


def export_metrics(watch: Watch, address: str, stop: threading.Event) -> threading.Thread:
    """Export a watch's metrics in a thread until `stop`, as OpenTelemetry's environment variables configure."""
    if not address.startswith(("http://", "https://")):
        raise OptionError(f"--otlp {address!r}", expected="an address of a collector, such as http://localhost:4318")
    interval = os.environ.get(_INTERVAL, _INTERVAL_MS)
    if not interval.isdigit() or not int(interval):
        raise OptionError(f"{_INTERVAL}={interval!r}", expected="a number of milliseconds")
    with needs_extra("otel", "--otlp"):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    address = address.rstrip("/")
    exporter = OTLPMetricExporter(endpoint=address if address.endswith(_PATH) else address + _PATH)
    since_us = now_us()
    collector = MetricsCollector(watch, since_us)

    def export() -> None:
        while not stop.wait(int(interval) / 1e3):
            at_us = now_us()
            exporter.export(otlp_data(collector.families(at_us), since_us, at_us))
        exporter.shutdown()

    thread = threading.Thread(target=export, name="upstream-otlp", daemon=True)
    thread.start()
    return thread


def otlp_data(families: Sequence[MetricFamily], since_us: int, now_us: int) -> MetricsData:
    """Return the families in OpenTelemetry's model: histograms are exponential, with the ages' own bins."""
    from opentelemetry.sdk.metrics.export import Metric, MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = [
        Metric(each.name, each.help, _UNITS.get(each.name.rpartition("_")[2], "1"), _data(each, since_us, now_us))
        for each in families
    ]
    scope = ScopeMetrics(InstrumentationScope("upstream"), metrics, "")
    return MetricsData([ResourceMetrics(Resource.create({"service.name": "upstream"}), [scope], "")])


def _data(family: MetricFamily, since_us: int, now_us: int) -> Any:
    from opentelemetry.sdk.metrics import export as model

    cumulative, span = model.AggregationTemporality.CUMULATIVE, (since_us * _NS, now_us * _NS)
    if family.kind == "histogram":
        points = [_histogram(labels, ages, *span) for labels, ages in family.samples if isinstance(ages, Ages)]
        return model.ExponentialHistogram(points, cumulative)
    numbers = [
        model.NumberDataPoint(labels, *span, each) for labels, each in family.samples if not isinstance(each, Ages)
    ]
    return model.Gauge(numbers) if family.kind == "gauge" else model.Sum(numbers, cumulative, is_monotonic=True)


def _histogram(labels: Mapping[str, str], ages: Ages, since_ns: int, now_ns: int) -> Any:
    from opentelemetry.sdk.metrics.export import Buckets, ExponentialHistogramDataPoint

    runs = [*bin_runs(ages)]
    first = runs[0][0] if runs else 0
    counts: list[int] = []
    for start, each in runs:
        counts += [0] * (start - first - len(counts)) + each
    # Prometheus names a bucket by its upper bound, OpenTelemetry by the lower one.
    bins, none = Buckets(first - 1, counts), Buckets(0, [])
    zeros, least = ages.bins.get(0, 0), cast("Any", None)  # the least of the ages is unknown
    return ExponentialHistogramDataPoint(
        labels, since_ns, now_ns, ages.count, ages.total_s, BUCKETS_SCHEMA, zeros, bins, none, 0, least, ages.max_s
    )
