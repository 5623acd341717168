"""Options of commands: NAME=VALUE, those of a file ``upstream.toml``, and the reference of all options; a session."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..conf.errors import OptionError
from ..conf.options import OptionDoc, documented
from ..conf.progress import progress
from ..conf.units import format_duration_us, parse_duration_us
from ..datasource.options import SourceOptions
from ..datasource.registry import CONNECTORS
from .failures import CommandFailure, hide_traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

_PREFIX = "storage."


def with_pairs_of_the_file(
    context: typer.Context, parameter: typer.CallbackParam, given: list[str] | None
) -> list[str] | None:
    """Return the pairs of ``upstream.toml``, overridden by those of the command line."""
    return [*(context.lookup_default(parameter.name or "") or []), *(given or [])] or None


def name_values(given: Sequence[str] | None, name: str) -> dict[str, str]:
    """Return the pairs of a repeatable option, or raise a Failure with the option's `name`."""
    pairs: dict[str, str] = {}
    for each in given or []:
        left, equals, right = each.partition("=")
        if not equals or not left.strip():
            raise CommandFailure(f"{name} {each!r} is not NAME=VALUE.", 2)
        pairs[left.strip()] = right
    return pairs


def storage_options(given: Sequence[str] | None) -> dict[str, str]:
    """Return the options of an object store, without the prefix of their names, or raise a Failure."""
    pairs = name_values(given, "--option")
    for name in pairs:
        if not name.startswith(_PREFIX):
            raise CommandFailure(
                f"--option {name!r} is not an option of an object store. Write --option storage.NAME=VALUE.", 2
            )
    return {name.removeprefix(_PREFIX): value for name, value in pairs.items()}


def duration(text: str, name: str) -> int:
    """Return an option's value in microseconds, or raise an OptionError with the option's `name`."""
    try:
        return parse_duration_us(text)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from None


@contextmanager
def spark_session(
    name: str,
    console: Console,
    log: Path,
    master: str | None,
    conf: Mapping[str, str],
    *,
    once: bool = False,
    spark_ui: bool = False,
) -> Generator[SparkSession, None, None]:
    """Start Spark for a command, and stop it at the end; `once` is for a JVM that ends soon."""
    from ..conf.jvm import OPTIONS
    from ..conf.session import session

    if once:  # to compile code a second time, for speed, takes longer than it saves
        compiled_once = f"-XX:TieredStopAtLevel=1 {conf.get(OPTIONS, '')}"
        conf = {**conf, OPTIONS: compiled_once}
    hide_traces()
    with progress("starting Spark", console):
        # An idle feed is looked at twenty times a second, not a hundred.
        settings: dict[str, Any] = {"spark.sql.streaming.pollingDelay": "50ms", **conf}
        spark = session(name, master=master, jvm_log=str(log), spark_ui=spark_ui, **settings)
    print_pages(spark, console)
    try:
        yield spark
    finally:
        with suppress(Exception):  # it may be gone already
            spark.stop()


def print_pages(spark: SparkSession, console: Console) -> None:
    """Print the address of Spark's pages, if there are any."""
    if pages := spark.sparkContext.uiWebUrl:
        console.print(f"Spark's own pages are at {pages}", markup=False, soft_wrap=True)


Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Set Spark's master, such as 'local[4]'.  [dim]\\[default: all cores of this machine][/dim]"
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", callback=with_pairs_of_the_file, help="Set a Spark property. Repeatable."
    ),
]
SparkUi = Annotated[
    bool,
    typer.Option(
        "--spark-ui",
        help="Serve Spark's pages too. They have no password: all users of this machine can read the job's plans and "
        "environment there, and a web site can by DNS rebinding.",
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="storage.NAME=VALUE",
        callback=with_pairs_of_the_file,
        help="Set an option of the object store. Repeatable.",
    ),
]
Log = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write Spark's output and the details of an error to this file.  "
        "[dim]\\[default: a file in the temporary folder][/dim]",
    ),
]


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]


DEFAULT_FILE = "upstream.toml"
"""The file that is read from the working directory, if it exists and no other one is named."""

_VARIABLE = re.compile(r"\$(?:\$|\{([^}]*)\}|)")
_PAIRS = {"option", "conf"}


def read_settings(path: Path, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Read the options of each command, by their long names without dashes; an invalid file raises a Failure.

    Options that are pairs (``--option``, ``--conf``) are tables. The table ``storage`` applies to every command with an
    object store. ``${NAME}`` is a variable of the `environment`, which keeps secrets out of the file; ``$$`` is a
    dollar sign.
    """
    try:
        parsed = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandFailure(f"{path} cannot be read: {error.strerror}.", 2) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandFailure(f"{path} is not TOML: {error}.", 2) from error
    for command, options in parsed.items():
        if not isinstance(options, dict):
            raise CommandFailure(
                f"{path}: {command!r} is not in a table. Write [latest] above the options of a command.", 2
            )
    return {
        command: {name: _resolved(value, f"{path}: {command}.{name}", environment) for name, value in options.items()}
        for command, options in parsed.items()
    }


def command_defaults(
    settings: Mapping[str, Mapping[str, Any]], parameters: Mapping[str, Mapping[str, str]], path: Path
) -> dict[str, dict[str, Any]]:
    """Return the defaults for Click, by command and parameter; an unknown command or option raises a Failure.

    `parameters` has the parameter of each command's long options. `path` is for errors.
    """
    stored = _as_given("option", {_PREFIX + name: each for name, each in settings.get("storage", {}).items()}, path)
    defaults = {
        command: {known["option"]: stored} for command, known in parameters.items() if stored and "option" in known
    }
    for command, options in settings.items():
        if command == "storage":
            continue
        if command not in parameters:
            raise CommandFailure(f"{path}: there is no command {command!r}.{_nearest(command, parameters)}", 2)
        known = parameters[command]
        for name in options:
            if name not in known:
                raise CommandFailure(f"{path}: `upstream {command}` has no option {name!r}.{_nearest(name, known)}", 2)
        given = {known[name]: _as_given(name, value, path) for name, value in options.items()}
        if stored and "option" in options:
            given[known["option"]] = [*stored, *given[known["option"]]]
        defaults[command] = {**defaults.get(command, {}), **given}
    return defaults


def _resolved(value: Any, place: str, environment: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _variable(found, place, environment), value)
    if isinstance(value, list):
        return [_resolved(each, place, environment) for each in value]
    if isinstance(value, dict):
        return {name: _resolved(each, f"{place}.{name}", environment) for name, each in value.items()}
    return value


def _variable(found: re.Match[str], place: str, environment: Mapping[str, str]) -> str:
    if found[0] == "$$":
        return "$"
    if found[1] is None:
        raise CommandFailure(
            f"{place}: a single $. Write ${{NAME}} for an environment variable, $$ for a dollar sign.", 2
        )
    if found[1] not in environment:
        raise CommandFailure(f"{place}: the environment variable {found[1]!r} is not set.", 2)
    return environment[found[1]]


def _as_given(name: str, value: Any, path: Path) -> Any:
    """Return a value in its form on the command line."""
    if name in _PAIRS:
        if not isinstance(value, dict):
            raise CommandFailure(f'{path}: {name!r} is a table: write "NAME" = "VALUE" below [<command>.{name}].', 2)
        return [f"{key}={_text(each)}" for key, each in value.items()]
    if isinstance(value, dict):
        raise CommandFailure(f"{path}: {name!r} takes a value, not a table.", 2)
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(sorted(known))}."


_INTRODUCTION = """\
# Options

Names are case-insensitive. UpStream rejects an unknown name, suggests the nearest known one, and reports all problems
at once. `upstream options` prints this page. A duration is `10 minutes` or `250 ms`, a size `32 MB`.
"""

_CONNECTORS = {
    "files": "Read present and future files: CSV, JSON lines, Parquet, or Zeek; plain, gzip, or zstd.",
    "kafka": "Read Kafka topics; each partition is a feed (`topic/3`). Besides the columns of the value, a schema can "
    "name fields of the message: `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`, `_timestampType`, and "
    "`_headers`. `key` and `eventTime` can name them without a schema. The connector needs the extra `kafka`.",
    "latest": "Read a table that UpStream's sink writes: first its rows at the start of the first run, then the rows "
    "that each commit applies. `key` and `eventTime` are the table's own unless you set them. With the table's own "
    "time, `watermark` is `from_table`: the low-watermarks in the table's commits.",
    "replay": "Play recorded files against the clock. All options of `connector=files` are there, too.",
    "synthetic": "Generate feeds from a seed.",
}


def options_reference() -> str:
    """Return all options of the source, its connectors and the sink, as Markdown."""
    from ..sink.commit.batch_name import BatchOptions
    from ..sink.spec.options import SinkOptions

    sections = [
        _INTRODUCTION,
        '## The source: `spark.readStream.format("upstream")`\n\n' + _list(documented(SourceOptions)),
    ]
    files = set(documented(CONNECTORS["files"].group()))
    for name, entry in CONNECTORS.items():
        options = _list([each for each in documented(entry.group()) if name != "replay" or each not in files])
        sections.append(f"### `connector={name}`\n\n{_CONNECTORS[name]}\n\n{options}")
    sections.append(
        '## The sink: `df.writeStream.format("upstream")`\n\n'
        + _list(documented(SinkOptions))
        + "\nOptions that begin with `storage.` go to the object store without that prefix.\n"
    )
    sections.append(
        '### Batches: `df.write.format("upstream")`\n\nThe same options, except `checkpointLocation`. Further options '
        "name a write, so that UpStream recognizes a repeat.\n\n" + _list(documented(BatchOptions))
    )
    return "\n".join(sections)


def _list(docs: list[OptionDoc]) -> str:
    lines: list[str] = []
    for doc in docs:
        takes = re.sub(r"^a (duration|size) such as .*'$|^one of ", r"\1", doc.expected)
        takes = takes.replace("a whole number of at least", "integer ≥").replace("true or false", "boolean")
        default = _default(doc)
        lines.append(f"- `{doc.name}` ({takes}{default and f'; default {default}'}): {doc.doc}".replace("\n", " "))
    return "\n".join(lines) + "\n"


def _default(doc: OptionDoc) -> str:
    value = doc.default
    if value is None or value in ((), "", frozenset()):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and doc.expected.startswith("a duration"):
        return format_duration_us(value)
    if isinstance(value, int) and doc.expected.startswith("a size"):
        units = (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10))
        return next(f"{value // size} {unit}" for unit, size in units if value % size == 0)
    if isinstance(value, tuple):
        return ", ".join(str(each) for each in value)
    return f"`{value}`" if isinstance(value, str) else str(value)
