"""LIKE and Java's regular expressions, translated to Rust's or refused if the two differ."""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from ..conf.errors import SchemaError
from .columnar import MOST_BYTES, Builder, Kernel

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\x0B\f\r"}
_ESCAPES = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f"}
_END = rf"(?:\r\n|[{_LINE_ENDS}])?\z"
"""The meaning of Java's $: the end, or before the last line's end."""
_COUNT = re.compile(r"\{\d{1,4}(,\d{0,4})?\}")
_SPECIAL = set("\\.+*?()|[]{}^$#&-~")


def like_pattern(pattern: str, escape: str = "\\") -> str:
    r"""Return LIKE's pattern as a Rust regular expression of whole texts; raise SchemaError for a wrong escape."""
    made: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise SchemaError(
                    f"in LIKE's pattern {pattern!r} the escape character {escape!r} stands before "
                    + (f"{pattern[at]!r}" if at < len(pattern) else "the end"),
                    expected=f"{escape!r} before %, _ or itself",
                )
            made.append(_quoted(pattern[at]))
        elif character in "%_":
            made.append(".*" if character == "%" else ".")
        else:
            made.append(_quoted(character))
        at += 1
    return f"(?s)^{''.join(made)}\\z"


def _quoted(character: str) -> str:
    return "\\" + character if character in _SPECIAL else character


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._made: list[str] = []
        self._repeatable = False
        self._closed = False
        self.groups = 0
        self.repeats_group = False

    def run(self) -> str:
        depth: list[bool] = []
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            if character == "\\":
                self._escape()
            elif character == "[":
                self._class()
            elif character == "(":
                self._open(depth)
            elif character == ")":
                if not depth:
                    raise self._refused("a ) without (")
                self._closed = depth.pop()
                self._add(")", 1)
                continue
            elif character in "*+?{":
                self._repeat()
            elif character == ".":
                self._add(f"[^{_LINE_ENDS}]", 1)
            elif character == "^":
                self._add("^", 1, repeatable=False)
            elif character == "$":
                if self._pattern[self._at + 1 : self._at + 2] not in ("", ")", "|"):
                    raise self._refused("$ before the end")
                self._add(_END, 1, repeatable=False)
            elif character == "|":
                self._add("|", 1, repeatable=False)
            elif character in "}]":
                self._add("\\" + character, 1)
            else:
                self._add(_quoted(character), 1)
            self._closed = False
        if depth:
            raise self._refused("a ( without )")
        return "".join(self._made)

    def _add(self, text: str, length: int, *, repeatable: bool = True) -> None:
        self._made.append(text)
        self._at += length
        self._repeatable = repeatable

    def _open(self, depth: list[bool]) -> None:
        captures = not self._pattern.startswith("(?", self._at)
        if not captures and not self._pattern.startswith("(?:", self._at):
            raise self._refused(self._pattern[self._at : self._at + 3])
        self.groups += captures
        depth.append(captures)
        self._add("(" if captures else "(?:", 1 if captures else 3, repeatable=False)

    def _repeat(self) -> None:
        if not self._repeatable:
            raise self._refused(f"{self._pattern[self._at]} after nothing that it repeats")
        count = _COUNT.match(self._pattern, self._at)
        if self._pattern[self._at] == "{" and count is None:
            raise self._refused("{")
        text = count[0] if count else self._pattern[self._at]
        self.repeats_group |= self._closed and text != "?"
        following = self._pattern[self._at + len(text) : self._at + len(text) + 1]
        if following == "+":
            raise self._refused("a possessive repetition")
        if following == "?":
            text += "?"
        self._add(text, len(text), repeatable=False)

    def _escape(self) -> None:
        character = self._pattern[self._at + 1 : self._at + 2]
        if character in _CLASSES:
            self._add(f"[{_CLASSES[character]}]", 2)
        elif character.lower() in _CLASSES and character:
            self._add(f"[^{_CLASSES[character.lower()]}]", 2)
        elif character in _ESCAPES:
            self._add(_ESCAPES[character], 2)
        elif character and not (character.isascii() and character.isalnum()):
            self._add(_quoted(character), 2)
        else:
            raise self._refused("\\" + character)

    def _class(self) -> None:
        start = self._at
        text, at = "[", start + 1
        if self._pattern.startswith("^", at):
            text, at = "[^", at + 1
        first = at
        while at < len(self._pattern) and (self._pattern[at] != "]" or at == first):
            character = self._pattern[at]
            following = self._pattern[at + 1 : at + 2]
            if character == "\\":
                if following in _CLASSES and following:
                    text += _CLASSES[following]
                elif following in _ESCAPES and following:
                    text += _ESCAPES[following]
                elif following and not (following.isascii() and following.isalnum()):
                    text += "\\" + following if following.isascii() else following
                else:
                    raise self._refused("\\" + following + " in [ ]")
                at += 2
                continue
            twice = character == "&" == following
            if twice or character in "[]~^" or (character == "-" and not self._is_range(at, first)):
                raise self._refused(f"{character} in [ ]", f"write \\{character}")
            text += "\\&" if character == "&" else character  # of Java, only && is an operator
            at += 1
        if at >= len(self._pattern):
            raise self._refused("a [ without ]")
        self._add(text + "]", at + 1 - start)

    def _is_range(self, at: int, first: int) -> bool:
        before, after = self._pattern[at - 1], self._pattern[at + 1 : at + 2]
        if at == first or not after or (at - first >= 2 and self._pattern[at - 2] in "\\-"):
            return False
        kinds = (str.isdigit, str.islower, str.isupper)
        return before.isascii() and after.isascii() and any(k(before) and k(after) for k in kinds) and before <= after

    def _refused(self, what: str, hint: str = "") -> SchemaError:
        return SchemaError(
            f"the regular expression {self._pattern!r} has {what}, which Spark may read differently",
            expected="characters, ., [ ] without nested sets, ( ), (?: ), |, *, +, ?, {n,m}, ^, $ at the end, "
            "\\d \\w \\s and escaped punctuation",
            hint=hint,
        )


def rust_pattern(pattern: str) -> str:
    r"""Translate a Java regular expression to Rust; raise SchemaError if the two read a part differently."""
    return _Translation(pattern).run()


def rust_replacement(text: str, groups: int) -> str:
    """Translate a Java replacement, with ``$1`` for a group, to Rust; raise SchemaError if it is invalid."""
    made: list[str] = []
    at = 0
    while at < len(text):
        character, following = text[at], text[at + 1 : at + 2]
        if character == "\\" and following:
            made.append(following.replace("$", "$$"))
            at += 2
        elif character == "$" and following.isdigit() and following.isascii():
            number, at = int(following), at + 2
            while text[at : at + 1].isdigit() and number * 10 + int(text[at]) <= groups:
                number, at = number * 10 + int(text[at]), at + 1
            if number > groups:
                raise SchemaError(f"the replacement {text!r} names group {number}", expected=f"one up to {groups}")
            made.append(f"${{{number}}}")
        elif character in "\\$":
            raise SchemaError(
                f"the replacement {text!r} has a {character} before {following!r}",
                expected="$ and a group's number, or \\ and a character",
            )
        else:
            made.append(character)
            at += 1
    return "".join(made)


def _nothing(text: pl.Expr, dtype: type[pl.DataType]) -> pl.Expr:
    return pl.when(pl.lit(value=False)).then(text).cast(dtype)


def _like(build: Builder, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
    pattern = build.constant(1, "the pattern")
    escape = build.constant(2, "the escape character") if len(build.call.arguments) > 2 else "\\"
    if pattern is None or escape is None:
        return _nothing(text, pl.Boolean)
    if len(escape) != 1:
        raise SchemaError(f"the escape character of {build.call} is {escape!r}", expected="one character")
    if build.call.function == "ilike":
        text, pattern = text.str.to_lowercase(), pl.Series([pattern]).str.to_lowercase().item()
    return _matched(text, pattern, escape)


def _matched(text: pl.Expr, pattern: str, escape: str) -> pl.Expr:
    """Return whether text matches LIKE's pattern; common forms need no regular expression."""
    if escape not in pattern and "_" not in pattern:
        body = pattern.strip("%")
        starts, ends = pattern.startswith("%"), pattern.endswith("%")
        if "%" not in body and body:
            if starts:
                return text.str.contains(body, literal=True) if ends else text.str.ends_with(body)
            return text.str.starts_with(body) if ends else text == body
    return text.str.contains(like_pattern(pattern, escape))


def _rlike(build: Builder, text: pl.Expr, _: pl.Expr) -> pl.Expr:
    pattern = build.constant(1, "the regular expression")
    return _nothing(text, pl.Boolean) if pattern is None else text.str.contains(rust_pattern(pattern))


def _translated(build: Builder, pattern: str) -> tuple[str, int]:
    translation = _Translation(pattern)
    made = translation.run()
    if translation.repeats_group:
        raise SchemaError(
            f"{build.call} repeats a group ( ), of which Spark and this evaluation may take different turns",
            expected="groups that are not repeated",
            hint="write (?: ) for what is repeated, and ( ) around all of it",
        )
    return made, translation.groups


def _extract(build: Builder, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
    pattern = build.constant(1, "the regular expression")
    group = build.constant(2, "the group's number") if len(build.call.arguments) > 2 else 1
    if pattern is None or group is None:
        return _nothing(text, pl.String)
    made, groups = _translated(build, pattern)
    if not 0 <= group <= groups:
        raise SchemaError(f"{build.call} takes group {group}", expected=f"a group from 0 to {groups}")
    text = build.share(text)
    return pl.when(text.is_not_null()).then(text.str.extract(made, group).fill_null(""))


def _replace(build: Builder, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
    pattern, by = build.constant(1, "the regular expression"), build.constant(2, "the replacement")
    if pattern is None or by is None:
        return _nothing(text, pl.String)
    made, groups = _translated(build, pattern)
    if pl.Series([""]).str.contains(made).item() or _END in made:
        raise SchemaError(
            f"{build.call} replaces what may be empty, which Spark and this evaluation do at different places",
            expected="a regular expression that matches at least one character, and has no $",
        )
    replacement, size = rust_replacement(by, groups), len(by.encode())
    text = build.share(text)
    length = build.share(text.str.len_bytes().cast(pl.Int64))
    # Each match has a character at least. They are counted where they could make the text too long.
    most = build.share(length * (size + 1 + replacement.count("${")))
    found = pl.when(most > MOST_BYTES).then(text).str.count_matches(made).cast(pl.Int64)
    size_by_count = length * (1 + replacement.count("${")) + found * size
    fits = build.fits(pl.when(most > MOST_BYTES).then(size_by_count).otherwise(most))
    return pl.when(fits).then(text).str.replace_all(made, replacement)


PATTERNS: Mapping[str, Kernel] = {
    "like": _like,
    "ilike": _like,
    "rlike": _rlike,
    "regexp_extract": _extract,
    "regexp_replace": _replace,
}
