"""Apply the rules in tools/prose to Markdown, and to the words in Python: ``prose.py FILE…``.

The rule files are Vale's, and mean here what they mean there. Vale itself is a binary that its packages fetch from a
site of releases. This program applies the three kinds of rule that the project uses, so that they hold everywhere.

The words in Python are help, the docs of options, errors, what commands print, and docstrings.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

_RULES = Path(__file__).with_name("prose") / "UpStream"
_END = re.compile(r"(?<=[.!?:;])[\"')\]]*\s+(?=[A-Z0-9`*\"'(])")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|vs|ch|No|Fig|cf)\.$")
_SKIPPED = {"code_inline": "Code", "html_inline": "", "image": ""}
_KINDS = {"existence", "substitution", "occurrence"}
_WORDS = 25
_ERROR = re.compile(r"(?:Error|Failure|_refused|misfit)$")
_ARGUMENTS = {"expected", "hint", "help", "epilog", "description"}
_PRINTED = {"echo", "print", "_say", "status", "add_task", "add_column"}
_SECTION = re.compile(r"^\w[\w ]*\n-{3,}\n", re.MULTILINE)
_LITERAL = re.compile(r":\w+:`[^`]*`|``.*?``|`[^`\s][^`]*`|\[bold\].*?\[/bold\]", re.DOTALL)
_MARKUP = re.compile(r"\[/?\w+\]|\\(?=\[)")
_FRAGMENT = {
    "a", "all", "an", "another", "any", "as", "at", "by", "each", "every", "for", "from", "here", "how", "in", "its",
    "it", "like", "no", "of", "on", "one", "only", "such", "that", "the", "their", "there", "these", "this", "those",
    "to", "what", "when", "where", "whether", "which", "who", "whose", "with", "without",
}  # fmt: skip
VERBS = {
    "abort", "activate", "add", "aggregate", "allow", "append", "apply", "assert", "backfill", "build", "cancel",
    "change", "check", "choose", "close", "coalesce", "collect", "compare", "compute", "connect", "copy", "count",
    "create", "deactivate", "decode", "define", "delete", "derive", "describe", "divide", "draw", "drop", "encode",
    "end", "erase", "estimate", "exclude", "expect", "explain", "feed", "find", "finish", "follow", "format",
    "generate", "give", "group", "host", "identify", "ignore", "include", "install", "join", "keep", "leave", "let",
    "limit", "list", "listen", "load", "look", "maintain", "make", "map", "measure", "merge", "name", "open",
    "order", "parse", "pass", "place", "play", "plot", "predict", "print", "push", "put", "query", "rank", "read",
    "rebucket", "record", "release", "remove", "rename", "repair", "replace", "reproduce", "reset", "restart",
    "return", "rewrite", "run", "scan", "search", "select", "send", "serve", "set", "show", "simulate", "sort",
    "split", "start", "stop", "store", "sum", "sync", "take", "test", "treat", "turn", "update", "use", "wait",
    "watch", "widen", "write", "yield",
}  # fmt: skip
"""Verbs that a help text or the docstring of a public function may begin with."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A place that breaks a rule.

    Attributes
    ----------
    line : int
        From 1: where the paragraph begins.
    rule, message : str
    """

    line: int
    rule: str
    message: str


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule as its file has it."""

    name: str
    kind: str
    message: str
    pattern: re.Pattern[str]
    swaps: tuple[tuple[re.Pattern[str], str], ...] = ()
    most: int = 0

    @classmethod
    def read(cls, path: Path) -> Rule:
        """Read one file.

        Raises
        ------
        ValueError
            The rule is of a kind that only Vale applies.
        """
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        kind = settings["extends"]
        if kind not in _KINDS:
            raise ValueError(f"{path} extends {kind}; tools/prose.py applies {', '.join(sorted(_KINDS))}")
        flags = re.IGNORECASE if settings.get("ignorecase") else 0
        whole = settings.get("token") or "|".join(f"(?:{each})" for each in settings.get("tokens", ()))
        bounded = whole if kind == "occurrence" else rf"\b(?:{whole})\b"
        swaps = tuple((re.compile(rf"\b(?:{was})\b", flags), to) for was, to in settings.get("swap", {}).items())
        return cls(path.stem, kind, settings["message"], re.compile(bounded, flags), swaps, settings.get("max", 0))

    def broken(self, text: str) -> Iterator[str]:
        """Yield a message for each place in a paragraph."""
        if self.kind == "existence":
            yield from (self.message.replace("%s", found[0]) for found in self.pattern.finditer(text))
        elif self.kind == "substitution":
            for was, to in self.swaps:
                yield from (self.message.replace("%s", to, 1).replace("%s", found[0]) for found in was.finditer(text))
        else:
            for sentence in sentences(text):
                if len(self.pattern.findall(sentence)) > self.most:
                    yield f"{self.message} {sentence[:60]}…"


def rules() -> list[Rule]:
    """Return the project's rules, in the order of their names."""
    return [Rule.read(each) for each in sorted(_RULES.glob("*.yml"))]


def sentences(text: str) -> list[str]:
    """Split a paragraph into sentences; a colon or a semicolon ends one, too."""
    parts = list[str]()
    for part in _END.split(text):
        if parts and _ABBREVIATION.search(parts[-1]):
            parts[-1] += " " + part
        else:
            parts.append(part)
    return parts


def paragraphs(markdown: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, heading and cell of a table, without its code: the first line's number, and the text."""
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.type == "inline" and token.map is not None:
            yield token.map[0] + 1, "".join(_plain(each) for each in token.children or ()).strip()


def _plain(token: Token) -> str:
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    return _SKIPPED.get(token.type, token.content)


def check(markdown: str, applied: list[Rule]) -> list[Finding]:
    """Return what breaks the rules in a page."""
    return [
        Finding(line, rule.name, message)
        for line, text in paragraphs(markdown)
        for rule in applied
        for message in rule.broken(text)
    ]


@dataclasses.dataclass(frozen=True)
class Text:
    """A text in a module.

    Attributes
    ----------
    line : int
    kind : str
        ``help``, ``option``, ``error``, ``output``, or ``docstring``.
    words : str
        Without code; what a value fills in is ``Code``.
    leads : bool
        Whether it begins an instruction, so that its first word is a verb.
    """

    line: int
    kind: str
    words: str
    leads: bool = False


def texts(source: str, *, prints: bool = False) -> Iterator[Text]:
    """Yield the texts of a module; `prints` if it is one of the command line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield from _of_call(node, prints=prints)
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of_docstring(node)


def _of_call(node: ast.Call, *, prints: bool) -> Iterator[Text]:
    function = node.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if called == "option" and len(node.args) == 4:
        yield from _values(node.args[3], "option", leads=True)
    elif _ERROR.search(called) or {"expected", "hint"} & {each.arg for each in node.keywords}:
        for argument in node.args:
            yield from _values(argument, "error")
    elif called == "append" and getattr(getattr(function, "value", None), "id", "") == "problems":
        yield from _values(node.args[0], "error")
    elif prints and called in _PRINTED:
        for argument in node.args:
            yield from _values(argument, "output")
    for each in node.keywords:
        if each.arg in _ARGUMENTS:
            kind = "help" if each.arg not in {"expected", "hint"} else "error"
            yield from _values(each.value, kind, leads=each.arg == "help")


def _values(node: ast.expr, kind: str, *, leads: bool = False) -> Iterator[Text]:
    """Yield the text of an expression, and texts that a condition chooses from."""
    text = _value(node)
    if text.strip():
        for paragraph in re.split(r"\n\s*\n", text):
            yield Text(node.lineno, kind, _without_code(paragraph), leads)
    for each in ast.walk(node):
        if isinstance(each, ast.IfExp):
            for branch in (each.body, each.orelse):
                if _value(branch).strip():
                    yield Text(branch.lineno, kind, _without_code(_value(branch)))


def _value(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_value(each) if isinstance(each, ast.Constant) else "Code" for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_value(node.left) or "Code") + (_value(node.right) or "Code")
    return ""


def _of_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Text]:
    raw = ast.get_docstring(node, clean=False)
    if raw is None:
        return
    line = node.body[0].lineno
    is_function = not isinstance(node, ast.Module | ast.ClassDef) and not any(
        "property" in ast.unparse(each) or "fixture" in ast.unparse(each) for each in node.decorator_list
    )
    for number, paragraph in enumerate(_paragraphs(inspect.cleandoc(raw))):
        yield Text(line, "docstring", _without_code(paragraph), leads=number == 0 and is_function)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the prose of a docstring: no heads of numpydoc, no code, no examples."""
    is_list, code = False, False
    for part in re.split(r"\n\s*\n", text):
        block = part
        if _SECTION.match(part):
            is_list = not part.startswith(("Notes", "Examples"))
            block = part.split("\n", 2)[2] if part.count("\n") > 1 else ""
        if block.lstrip().startswith(">>>") or (code and block.startswith("    ")):
            continue
        code = block.rstrip().endswith("::")
        if is_list:
            for item in re.split(r"^(?=\S)", block, flags=re.MULTILINE):
                yield item.partition("\n")[2].strip()
        else:
            yield from re.split(r"\n(?=- |\d\. )", block)


def _without_code(text: str) -> str:
    return " ".join(_MARKUP.sub("", _LITERAL.sub("Code", text)).split())


def check_words(source: str, applied: list[Rule], *, prints: bool = False) -> list[Finding]:
    """Return what breaks the rules in the words of a module."""
    stricter = [dataclasses.replace(each, most=min(each.most, _WORDS)) for each in applied]
    found = list[Finding]()
    for text in texts(source, prints=prints):
        found += [
            Finding(text.line, f"{text.kind}: {rule.name}", message)
            for rule in stricter
            for message in rule.broken(text.words)
        ]
        first = re.match(r"(?:For [^:]*: )?([A-Za-z]+)(?=[\s.,:])", text.words)
        word = "" if first is None else first[1].lower()
        if text.leads and word and (word in _FRAGMENT or (text.kind != "docstring" and word not in VERBS)):
            message = f"Begin with a verb in the imperative, not with '{word}': {text.words[:60]}…"
            found.append(Finding(text.line, f"{text.kind}: Imperative", message))
    return sorted(found, key=lambda each: each.line)


def main(paths: list[str]) -> int:
    """Print what is found, a line each; 1 where there is any."""
    applied, found = rules(), 0
    for path in map(Path, paths):
        text = path.read_text(encoding="utf-8")
        is_page = path.suffix == ".md"
        for each in check(text, applied) if is_page else check_words(text, applied, prints="cli" in path.parts):
            print(f"{path}:{each.line}: {each.rule}: {each.message}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
