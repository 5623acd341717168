"""Apply the rules in tools/prose to Markdown: ``prose.py FILE…``.

The rule files are Vale's, and mean here what they mean there. Vale itself is a binary that its packages fetch from a
site of releases. This program applies the three kinds of rule that the project uses, so that they hold everywhere.
"""

from __future__ import annotations

import dataclasses
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


def main(paths: list[str]) -> int:
    """Print what is found, a line each; 1 where there is any."""
    applied, found = rules(), 0
    for path in paths:
        for each in check(Path(path).read_text(encoding="utf-8"), applied):
            print(f"{path}:{each.line}: {each.rule}: {each.message}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
