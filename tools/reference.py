"""docs/reference.md from the docstrings of the public names: ``make reference``."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from typing import Any

import upstream
from upstream.api.windows import GroupedStream, WindowedStream
from upstream.sink.admin.erase import Erasure
from upstream.sink.commit.metrics_table import METRICS_SCHEMA
from upstream.sink.figures.summary import CommitSummary
from upstream.workbench.processes import Workbench

GROUPS = {
    "A session, feeds and tables": ["session", "read", "latest", "write_latest", "write_batch"],
    "Streams": ["UpdateStream", "WindowedStream", "GroupedStream"],
    "What windows and joins take": ["Windower", "Emission", "Lateness", "Interval", "OrderedRelease", "Shards"],
    "Continuous queries": ["sql", "source", "queries", "Queries"],
    "Tables": ["LatestTable"],
    "Watermarks": ["Watermark"],
    "Aggregate functions": [
        name if name in upstream.__all__ else f"aggregates.{name}" for name in upstream.aggregates.__all__
    ],
    "The workbench": ["ui", "Workbench"],
    "A query's own figures": ["stalest_keys", "CommitSummary", "Erasure"],
    "Sessions and schemas of your own": ["check_session", "with_system_ddl"],
}
"""Which names stand together. Modules have a part of their own, and a name that stands nowhere is an error."""

NOT_FOR_USERS = {"UpdateStream.bound", "CommitSummary.to_json", "CommitSummary.from_json"}
"""Methods that other parts of the package call."""

IN_MODULES = {"aggregates"}
"""Names at the top that have their part elsewhere on the page."""

_NOT_AT_THE_TOP: dict[str, Any] = {
    "queries": import_module("upstream.api.queries").queries,
    "WindowedStream": WindowedStream,
    "GroupedStream": GroupedStream,
    "Workbench": Workbench,
    "CommitSummary": CommitSummary,
    "Erasure": Erasure,
}
"""Classes that methods return, and that nobody imports; a function that has the name of a package."""

_SECTION = re.compile(r"\n\n(\w+)\n-+\n")
_ITEM = re.compile(r"^(?=\S)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A public name.

    Attributes
    ----------
    name : str
        As readers write it, after ``us.``.
    value : object
    aliases : tuple of str
        Other names of the same.
    """

    name: str
    value: Any
    aliases: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, str]:
        """The docstring's sections; the text before them is called ``""``."""
        found = _SECTION.split("\n\n" + inspect.cleandoc(self.value.__doc__ or ""))
        return {"": found[0].strip(), **dict(zip(found[1::2], found[2::2], strict=True))}

    @property
    def is_class(self) -> bool:
        """Whether it is a class."""
        return isinstance(self.value, type)

    @property
    def is_made_by_users(self) -> bool:
        """Whether readers call it: functions, methods, and classes that are no errors and no results."""
        if self.is_class:
            return not issubclass(self.value, Exception) and "Attributes" not in self.parts
        return callable(self.value)

    @property
    def signature(self) -> str:
        """Its name and parameters, a line for each where there are many."""
        taken = [each for each in inspect.signature(self.value).parameters.values() if each.name not in ("self", "cls")]
        texts, kind = list[str](), None
        for each in taken:
            if each.kind is each.KEYWORD_ONLY and kind not in (each.KEYWORD_ONLY, each.VAR_POSITIONAL):
                texts.append("*")
            kind = each.kind
            stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
            default = "" if each.default is each.empty else "=" + repr(each.default).replace("'", '"')
            texts.append(f"{stars}{each.name}{default}")
        short = f"{self.shown}({', '.join(texts)})"
        return short if len(short) <= 100 else f"{self.shown}(\n    " + ",\n    ".join(texts) + ",\n)"

    @property
    def shown(self) -> str:
        """As it is called: methods on what they are methods of."""
        head, _, method = self.name.rpartition(".")
        static = isinstance(inspect.getattr_static(getattr(upstream, head, None), method, None), classmethod)
        return (
            f"us.{self.name}"
            if not head or static or head in ("errors", "aggregates")
            else f"{_CALLED.get(head, head)}.{method}"
        )


WITHOUT_EXAMPLE = ("Queries.", "Watermark.", "testing.")
"""Owners whose own example, or page, shows their methods."""

OBVIOUS = {"- `column`: Its name.", *(f"- `name`: The {what}'s name." for what in ("query", "view", "relation"))}
"""Parameters that their names describe."""

_CALLED = {
    "UpdateStream": "stream", "WindowedStream": "windows", "LatestTable": "table", "Watermark": "watermark",
    "Queries": "queries",
}  # fmt: skip


def entries() -> dict[str, list[Entry]]:
    """Return the parts of the page, with their names in order."""
    parts = {part: [each for name in names for each in _of(name)] for part, names in GROUPS.items()}
    for name in upstream.__all__:
        value = getattr(upstream, name)
        if isinstance(value, types.ModuleType) and name not in IN_MODULES | _NOT_AT_THE_TOP.keys():
            own = [each for each in value.__all__ if each != "UpstreamError"]
            first = ["UpstreamError"] if "UpstreamError" in value.__all__ else []
            parts[f"`us.{name}`"] = [Entry(f"{name}.{each}", getattr(value, each)) for each in [*first, *own]]
    named = {each for names in GROUPS.values() for each in names} | IN_MODULES
    astray = [name for name in upstream.__all__ if name not in named and f"`us.{name}`" not in parts]
    if astray:
        raise SystemExit(f"tools/reference.py: put {', '.join(astray)} into one of GROUPS")
    return parts


def _of(name: str) -> Iterator[Entry]:
    value = _NOT_AT_THE_TOP.get(name) or attrgetter(name)(upstream)
    others = {other for other in upstream.__all__ if getattr(upstream, other) is value} - {name}
    yield Entry(name, value, tuple(sorted(others)))
    if not isinstance(value, type):
        return
    of = {key: inspect.getattr_static(value, key) for key in dir(value) if not key.startswith("_")}
    methods = {key: getattr(value, key) for key in of if isinstance(of[key], (types.FunctionType, classmethod))}
    for key, method in methods.items():
        if f"{name}.{key}" not in NOT_FOR_USERS and method.__name__ == key:
            same = tuple(other for other in methods if methods[other] == method and other != key)
            yield Entry(f"{name}.{key}", method, same)


def page() -> str:
    """Return docs/reference.md."""
    parts = entries()
    shared = _shared(parts)
    lines = [
        "# API",
        "",
        "Every public name, made from the docstrings by `tools/reference.py`. A wrong argument raises `OptionError`,",
        "a column that is missing or does not fit `SchemaError`; `help(us.read)` lists all errors of a call, and",
        "[us.errors](#userrors) what to do. The options of source and sink are in [options](options.md).",
        "In the examples, `us` is `upstream`, `pl` is `polars`, `spark` is a session, `stream` and `other` are streams",
        "of a feed, and `table` is a `LatestTable`. `feed/` holds CSV files with the columns `vehicle_id`, `timestamp`",
        "and `speed`.",
        "",
        "These parameters mean the same wherever a signature has them and its entry does not list them:",
        "",
        *shared,
    ]
    for part, those in parts.items():
        lines += ["", f"## {part}"]
        module = part.strip("`").removeprefix("us.")
        if part.startswith("`"):
            lines += ["", *_section("", _text(Entry(module, getattr(upstream, module)).parts[""]))]
        for each in those:
            lines += ["", *_entry(each, shared)]
    return "\n".join(lines) + "\n"


def _parameters(entry: Entry) -> list[str]:
    return re.split(r"\n(?=- )", _items(entry.parts.get("Parameters", "")))


def _shared(parts: dict[str, list[Entry]]) -> list[str]:
    """Return the parameters that several names describe in the same words."""
    called = [entry for those in parts.values() for entry in those if entry.is_made_by_users]
    every = [each for entry in called for each in _parameters(entry)]
    several = sorted({each for each in every if each and every.count(each) > 1} - OBVIOUS)
    named = Counter(each.split("`")[1] for each in several)
    return [each for each in several if named[each.split("`")[1]] == 1]


def _entry(entry: Entry, shared: list[str]) -> list[str]:
    lines = [f"### `{entry.shown}`" if "." in entry.name else f"### `us.{entry.name}`", ""]
    if not callable(entry.value):
        return [*lines, f"`{entry.value!r}`"]
    parts = entry.parts
    parts.pop("Raises", None)
    plain = re.fullmatch(r"[^\n:]+", parts.get("Returns", "").strip())
    if entry.is_made_by_users:
        lines += ["```python", entry.signature + (f" -> {plain[0]}" if plain else ""), "```", ""]
    if plain:
        parts.pop("Returns")
    if entry.aliases:
        lines += [f"Also called {', '.join(f'`{each}`' for each in entry.aliases)}.", ""]
    if entry.name in _NOT_AT_THE_TOP:
        parts.pop("Attributes", None)
    if entry.name.startswith(WITHOUT_EXAMPLE) or entry.name in GROUPS["Aggregate functions"]:
        parts.pop("Examples", None)
    lines += _section("", _text(parts.pop("")))
    for name, text in parts.items():
        write: Callable[[str], str] = {"Examples": _examples, "Notes": _text}.get(name, _items)
        written = write(text)
        if name == "Parameters" and entry.is_made_by_users:
            written = "\n".join(each for each in _parameters(entry) if each not in {*shared, *OBVIOUS})
        if name == "Attributes" and entry.value is CommitSummary:
            others = [each for each in re.split(r"\n(?=- )", written) if each.split("`")[1] not in METRICS_SCHEMA.names]
            written = "The columns of the [table of metrics](metrics.md#the-table-of-metrics), and:\n\n"
            written += "\n".join(others)
        if written:
            lines += ["", *_section("" if name in {"Notes", "Examples"} else name, written)]
    shown = [
        (key, each.__doc__)
        for key, each in inspect.getmembers(entry.value)
        if isinstance(each, property) and key[0] != "_"
    ]
    shown = [(key, doc) for key, doc in shown if doc and f"{entry.name}.{key}" not in NOT_FOR_USERS]
    if entry.is_class and shown:
        about = [f"- `{key}`: {_text(inspect.cleandoc(doc or '').split(chr(10) * 2)[0])}" for key, doc in shown]
        lines += ["", *_section("Properties", "\n".join(about))]
    return lines


def _section(name: str, text: str) -> list[str]:
    return ([f"**{name}**", ""] if name else []) + text.strip().split("\n")


def _items(text: str) -> str:
    """Parameters, results, errors: what has a name or a type in one line, and its text in those below."""
    lines = list[str]()
    for item in filter(None, _ITEM.split(text)):
        head, _, rest = item.strip().partition("\n")
        name, _, kind = head.partition(" : ")
        about = ": " + _text(inspect.cleandoc(rest)).replace("\n", "\n  ") if rest.strip() else ""
        lines.append(
            "- " + ", ".join(f"`{each}`" for each in name.split(", ")) + (f" ({kind})" if kind else "") + about
        )
    return "\n".join(lines)


def _examples(text: str) -> str:
    """Prose as it is, what is typed and its answers in fences."""
    blocks = [block if ">>>" not in block else f"```python\n{block}\n```" for block in text.strip().split("\n\n")]
    return "\n\n".join(block if ">>>" in block else _text(block) for block in blocks)


def _text(text: str) -> str:
    """Markdown of a docstring's prose."""
    text = re.sub(r":\w+:`~?([^`]*)`", lambda role: f"`{role[1].rpartition('.')[2]}`", text)
    text = re.sub(r"::\n\n((?: {4}.*\n?|\n)+)", r"\n\n\1", text)
    return text.replace("``", "`")


def command_line() -> str:
    """Return docs/command-line.md: the help of each command, in Markdown."""
    import typer

    from upstream.cli.main import app

    root = typer.main.get_group(app)
    context = root.make_context("upstream", [], resilient_parsing=True)
    commands = {"upstream": root, **{f"upstream {name}": command for name, command in root.commands.items()}}
    records = {name: [each.get_help_record(context) for each in command.params] for name, command in commands.items()}
    items = {name: [_parameter(*record) for record in found if record] for name, found in records.items()}
    often = Counter(item for found in items.values() for item in found)
    lines = [
        "# Command line",
        "",
        "Each command has `--help`. These mean the same wherever a command has them:",
        "",
        *sorted(item for item, count in often.items() if count > 2 and "`NAME`" not in item),
    ]
    for name, command in commands.items():
        lines += ["", f"## `{name}`", "", _without_markup(inspect.cleandoc(command.help or ""))]
        if any(each.param_type_name == "argument" for each in command.params) or command is root:
            pieces = [each for each in command.collect_usage_pieces(context) if command is root or each != "[OPTIONS]"]
            lines += ["", f"`{' '.join([name, *pieces])}`"]
        own = [item for item in items[name] if often[item] <= 2]
        lines += ["", *own] if own else []
        lines += ["", command.epilog] if command.epilog else []
    return "\n".join(lines) + "\n"


def _parameter(name: str, about: str) -> str:
    text = re.sub(r" <(?:str|list\[str\])>", " TEXT" if name.startswith("-") else "", name)
    return f"* `{re.sub(r' <(?:int|float)[^>]*>', ' N', text)}`: {_without_markup(about)}"


def _without_markup(text: str) -> str:
    """Replace Rich's markup by Markdown."""
    return re.sub(r"\[/?bold\]", "`", re.sub(r"\[/?(?:dim|italic)\]", "", text)).replace("\\[", "[")


PAGES = {"reference": page, "command-line": command_line}


if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1] if len(sys.argv) > 1 else "reference"]())
