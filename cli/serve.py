"""``upstream serve``: tables for BI tools by Spark's Thrift server. ``upstream ui``: the workbench in a browser."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Generator, Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..conf.column_names import quoted
from ..conf.errors import OptionError
from ..conf.locations import absolute_location, is_remote
from ..delta_format.latest_table import OWN_COLUMNS
from .failures import FAILED, CommandFailure
from .options import print_pages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclasses.dataclass(frozen=True)
class ServeRequest:
    """The tables to serve, and the address."""

    tables: Mapping[str, str]  # the folder or address of each view's table, by the view's name
    metrics: str | None  # the table of metrics; with it, each view gets another one with its freshness
    host: str  # where clients connect, with `port`
    port: int

    @classmethod
    def of(cls, tables: Sequence[str], metrics: str | None, host: str, port: int) -> ServeRequest:
        """Return the request of the command line: ``NAME=PATH``, or a path whose last part is the name."""
        named: dict[str, str] = {}
        for each in tables:
            name, equals, path = each.partition("=")
            if not equals or "/" in name:
                name, path = os.path.basename(each.rstrip("/")), each
            if not name or not path or name.lower() in map(str.lower, named):
                raise OptionError(
                    f"{each!r} gives the name {name!r}",
                    expected="a name of its own for each table",
                    hint="write NAME=PATH",
                )
            named[name] = absolute_location(path)
        return cls(named, None if metrics is None else absolute_location(metrics), host, port)


def serve(
    served: ServeRequest, console: Console, master: str | None, conf: Mapping[str, str], *, spark_ui: bool
) -> None:
    """Serve until Ctrl-C or SIGTERM, or raise a Failure if a table is missing or the port is taken."""
    from ..conf.session import session
    from ..delta_format.scan import open_table

    for location in (*served.tables.values(), served.metrics):
        if location is not None and not is_remote(location):  # a store's credentials may be Spark's alone
            open_table(location, {})
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    settings: dict[str, Any] = {
        "spark.hive.server2.thrift.bind.host": served.host,
        "spark.hive.server2.thrift.port": served.port,
        # Views are in memory: each start makes them again, and no metastore's folder remains.
        "spark.sql.catalogImplementation": "in-memory",
    }
    spark = session("upstream serve", master=master, spark_ui=spark_ui, **{**settings, **conf})
    print_pages(spark, console)
    try:
        for name, location in served.tables.items():
            _make_views(spark, name, location, served.metrics)
        with _server(spark, served):
            names = ", ".join(served.tables)
            console.print(f"Serving {names} on jdbc:hive2://{served.host}:{served.port}/ until Ctrl-C", markup=False)
            while not stop.wait(0.5):
                pass
    finally:
        spark.stop()


@contextlib.contextmanager
def _server(spark: SparkSession, served: ServeRequest) -> Generator[None, None, None]:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    java_session: Any = spark._jsparkSession
    try:
        server = jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2.startWithContext(
            java_session.sqlContext()
        )
    except Py4JJavaError as error:
        raise CommandFailure(
            f"Spark's Thrift server does not start on {served.host}:{served.port}: "
            f"{error.java_exception.getMessage()}. "
            "Is the port taken? Name another one with --port.",
            FAILED,
            str(error),
        ) from error
    try:
        yield
    finally:
        server.stop()


def _make_views(spark: SparkSession, name: str, location: str, metrics: str | None) -> None:
    from pyspark.errors import PySparkException

    from ..sink.figures.summary import freshness_view

    try:
        columns = spark.table(f"delta.{quoted(location)}").columns
        ours = ", ".join(quoted(each) for each in OWN_COLUMNS if each in columns)
        chosen = f"* EXCEPT ({ours})" if ours else "*"
        # Columns that come later are seen as well.
        _make_view(spark, name, f"SELECT {chosen} FROM delta.{quoted(location)}")  # noqa: S608 quoted
        if metrics is not None:
            _make_view(spark, f"{name}_freshness", freshness_view(metrics, location))
    except PySparkException as error:
        message = str(error).splitlines()[0]
        raise CommandFailure(f"{name} at {location} cannot be served: {message}", FAILED, str(error)) from error


def _make_view(spark: SparkSession, name: str, query: str) -> None:
    spark.sql(f"CREATE OR REPLACE VIEW {quoted(name)} WITH SCHEMA EVOLUTION AS {query}")


def show_workbench(
    locations: Sequence[str],
    storage: Mapping[str, str],
    console: Console,
    *,
    host: str,
    port: int,
    token: str | None,
    control: bool,
    otlp: str | None = None,
) -> None:
    """Serve the workbench until Ctrl-C, or raise EnvironmentMissingError without its packages.

    With `otlp`, the address of a collector, it exports the metrics too.
    """
    from ..workbench.processes import check_packages
    from ..workbench.watch import Watch

    check_packages()
    from ..workbench.server import serve as serve_pages

    watch = Watch(locations, storage)
    if token is None and port:
        from ..workbench.security import kept_token

        token = kept_token(f"{host}:{port} {watch.locations}")

    def started(address: str) -> None:
        console.print(f"The workbench is at {address} until Ctrl-C", markup=False)

    if otlp is not None:
        from ..workbench.otlp import export_metrics

        export_metrics(watch, otlp, Event())
    serve_pages(watch, host=host, port=port, token=token, control=control, started=started)


@contextlib.contextmanager
def workbench_beside(locations: Sequence[str], storage: Mapping[str, str], console: Console) -> Generator[None]:
    """Serve the workbench beside this process, and print its address; errors as of :func:`~upstream.ui`."""
    from ..workbench.processes import Workbench

    with Workbench(locations, storage) as workbench:
        console.print(f"The workbench is at {workbench.address}", markup=False, soft_wrap=True)
        yield
