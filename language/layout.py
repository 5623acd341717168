"""The layout of a file of statements: keywords in capitals, a line for each clause, and each comment in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token
from sqlglot.tokenizer_core import TokenType as T

from ..conf.deep_stack import on_deep_stack
from ..conf.errors import OptionError
from ..expressions.reader import NOT_NAMES, SparkWords
from .dialect import parse as parse_query
from .statements import Alter, Create, CreateFunction, Explain, Select, Show, ShowCreate, Statement, ended, parse

_WIDTH = 100
_STEP = "  "
_LITERALS = frozenset([T.STRING, T.RAW_STRING, T.HEX_STRING, T.NUMBER, T.IDENTIFIER])
_WINDOWS = ("PARTITION BY", "RANGE", "ROWS", "NOW")
_JOINS = frozenset(["ASOF", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "JOIN"])
_SETS = frozenset(["UNION", "EXCEPT", "MINUS", "INTERSECT"])
_CLAUSES = _SETS | frozenset(["SELECT", "FROM", "WHERE", "HAVING", "QUALIFY", "LIMIT", "EMIT", "GROUP BY", "ORDER BY"])
_OF_OVER = frozenset(["PARTITION BY", "ORDER BY", "RANGE", "ROWS"])
# Words with a blank before a bracket; others are functions.
_BEFORE_BRACKETS = (NOT_NAMES - {"LEFT", "RIGHT"}) | frozenset(
    [
        "OVER",
        "FILTER",
        "MATCH_CONDITION",
        "SAMPLE",
        "TABLESAMPLE",
        "REPEATABLE",
        "ROLLUP",
        "CUBE",
        "GROUPING SETS",
        "SET",
        "GROUP BY",
        *_OF_OVER,
    ]
)
_COMMENT = re.compile(r"--[^\n]*|/\*|\{#.*?#\}", re.DOTALL)
_BRACKET = re.compile(r"/\*|\*/")


@dataclass(frozen=True)
class _Comment:
    text: str
    blank: bool  # an empty line comes before it


@dataclass(frozen=True)
class _Word:
    """A token in its output form, with the comments around it."""

    text: str
    keyword: bool = False
    literal: bool = False
    glued: bool = False  # no blank comes before it
    above: tuple[str, ...] = ()  # comments on lines of their own before it
    behind: tuple[str, ...] = ()  # comments on its line

    @property
    def ends_line(self) -> bool:
        return any(each.startswith("--") or "\n" in each for each in self.behind)

    def __str__(self) -> str:
        return " ".join([self.text, *self.behind])


@dataclass(frozen=True)
class _Group:
    """A bracket and what is in it."""

    opening: _Word
    inside: tuple[_Item, ...]
    closing: _Word


_Item = _Word | _Group
_Items = Sequence[_Item]


def layout(text: str) -> str:
    """Return a file of statements in its one layout: the layout of the result is the result.

    The statements mean the same, and each comment stays. Raises OptionError or QueryRefusedError if the text is not
    made of statements.
    """
    return on_deep_stack(lambda: _file(text))


def _file(text: str) -> str:
    tokens, after = _tokens(text), 0
    ends = [each.start for each in tokens if each.token_type is T.SEMICOLON]
    # The last statement needs no semicolon, and gets one.
    if tokens and tokens[-1].token_type is not T.SEMICOLON:
        ends.append(tokens[-1].end + 1)
    lines: list[str] = []
    for end in ends:
        following = next((each.start for each in tokens if each.start > end), len(text))
        if not any(after <= each.start < end and each.token_type is not T.SEMICOLON for each in tokens):
            continue  # an empty statement: its comments are those of the next one
        lines += _statement(text[after:end])
        after = end + text.startswith(";", end)
        behind, _, _ = _comments(text[after:following])
        for each in behind:
            lines[-1] += f" {each.text}"
            after = text.index(each.text, after) + len(each.text)
    _, above, _ = _comments(text[after:], fresh=True)
    lines += [line for each in above for line in [""] * each.blank + [each.text]]
    return "\n".join(lines).strip("\n") + "\n" if lines else ""


def _statement(text: str) -> list[str]:
    """Return the lines of a statement, with its semicolon, and the comments above it."""
    start = next(each.start for each in _tokens(text) if each.token_type is not T.SEMICOLON)
    _, above, blank = _comments(text[:start], fresh=True)
    lines = [line for each in above for line in [""] * each.blank + [each.text]] + [""] * blank
    body = text[start:].rstrip()
    meant = _meaning(parse(body))
    for capitals in (True, False):
        laid = _laid(body, capitals=capitals)
        if _meaning(parse("\n".join(laid))) == meant:
            break
    else:
        laid = [body]
    return [*lines, ended("\n".join(laid))]


def _meaning(statement: Statement) -> object:
    """Return what is equal for statements that differ in their layout alone."""
    if isinstance(statement, CreateFunction):
        signature = f"{statement.parameters}) {statement.returns}"
        return replace(statement, parameters="", returns=""), [each.text.upper() for each in _tokens(signature)]
    if not isinstance(statement, Create | Alter | Select) or statement.text is None:
        return statement
    tree = parse_query(statement.text)
    for each in tree.walk():
        if isinstance(each, exp.Anonymous | exp.Var):
            each.set("this", each.name.upper())
    return replace(statement, text=""), tree


def _laid(text: str, *, capitals: bool) -> list[str]:
    statement = parse(text)
    if isinstance(statement, Explain | Show | ShowCreate):  # of which sqlglot makes two tokens
        word, _, rest = text.partition(" ")
        return [f"{word.upper()} {rest}".rstrip()]
    query = statement.text if isinstance(statement, Create | Alter | Select) else None
    start = len(text) - len(query or "")
    names = _names_of_head(text, start)
    if query is not None:
        names |= {start + each.meta["start"] for each in parse_query(query).find_all(exp.Identifier)}
    words = [*_words(text, names, capitals=capitals, typed=isinstance(statement, CreateFunction))]
    head = _grouped(iter([word for at, word in words if at < start]))
    body = _grouped(iter([word for at, word in words if at >= start]))
    _, last, _ = _comments(text[_tokens(text)[-1].end + 1 :])
    if not head:
        return [*_query(body, _WIDTH), *(each.text for each in last)]
    indented = [_STEP + each for each in _query(body, _WIDTH - len(_STEP))] if body else []
    indented += [_STEP + each.text for each in last]
    flat = _flat(head)
    parts = [head] if flat is not None and len(flat) <= _WIDTH else _split(head, ("FROM", "WITH"))
    heads = _hanging([line for each in parts for line in _lines(each, _WIDTH - len(_STEP))])
    return [*heads, *indented]


def _names_of_head(text: str, start: int) -> set[int]:
    """Return the places of words before the query that name something: a definition, or an option."""
    found: set[int] = set()
    depth, angles, named = 0, 0, False
    tokens = [each for each in _tokens(text) if each.start < start]
    typed = len(tokens) > 1 and tokens[1].text.upper() == "FUNCTION"
    kinds = ("MATERIALIZED", "VIEW", "SOURCE", "TABLE", "FUNCTION")
    for before, each, after in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        # Of a function's parameters, and of the fields of a struct, the first word is a name.
        first = before.text in ("(", ",") if not angles else after is not None and after.text[0] not in ",<>"
        if (first or not typed) if depth or angles else not (named or each.text.upper() in kinds):
            found.add(each.start)
            named = True
        depth += (each.token_type is T.L_PAREN) - (each.token_type is T.R_PAREN)
        angles += each.text.count("<") - each.text.count(">")
    return found


# --- words --------------------------------------------------------------------------------------------------------


def _tokens(text: str) -> list[Token]:
    try:
        found = SparkWords().tokenize(text)
    except TokenError as error:
        raise OptionError("a text or a comment has no end", expected="a closing quote") from error
    # Of 5L, sqlglot makes three tokens in one place.
    return [
        each for before, each in zip([None, *found], found, strict=False) if not before or before.start < each.start
    ]


def _words(text: str, names: set[int], *, capitals: bool, typed: bool) -> Iterator[tuple[int, _Word]]:
    """Yield the places of words, and the words; if `typed`, signs are those of types such as ``ARRAY<INT>``."""
    tokens = _tokens(text)
    before: _Word | None = None
    unary = False  # the word before is the sign of a number
    above: tuple[str, ...] = ()
    for at, token in enumerate(tokens):
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        behind, later, _ = _comments(text[token.end + 1 : following.start if following else len(text)])
        written = text[token.start : token.end + 1]
        literal = token.token_type in _LITERALS
        keyword = not literal and token.start not in names and written[:1].isidentifier()
        if keyword:
            written = " ".join(written.split())
            written = written.upper() if capitals else written
        touching = at > 0 and tokens[at - 1].end + 1 == token.start
        next_word = following.text.upper() if following else ""
        of_type = typed and not literal and (written[0] in "<>:" or (before is not None and before.text == "<"))
        glued = of_type or _glued(before, unary, written, touching, next_word)
        word = _Word(written, keyword, literal, glued, above, tuple(each.text for each in behind))
        above = tuple(each.text for each in later)
        yield token.start, word
        unary = written in ("-", "+", "~") and (before is None or before.keyword or _is_sign(before, ")", "]"))
        before = word


def _glued(before: _Word | None, unary: bool, text: str, touching: bool, following: str) -> bool:
    if before is None or (before.text == text == "-"):
        return False
    if text in (",", ")", "]", ".", "::", ";") or before.text in ("(", "[", ".", "::") or unary:
        return True
    if text == "(":
        return before.text.upper() not in _BEFORE_BRACKETS and (before.keyword or before.text[:1].isidentifier())
    if text == "[":
        return following not in _WINDOWS
    signs = _is_sign(before, ")", "]") and not text[:1].isalnum() and text[:1] not in "'\"`_("
    return touching and (signs or (before.literal and text[:1] in "'\""))


def _is_sign(word: _Word, *but: str) -> bool:
    return not word.literal and not word.text[:1].isidentifier() and word.text not in but


def _comments(gap: str, *, fresh: bool = False) -> tuple[list[_Comment], list[_Comment], bool]:
    """Return the comments between two tokens: on the line of the first, and others; and whether a line is empty last.

    With `fresh`, no token comes before them.
    """
    behind: list[_Comment] = []
    above: list[_Comment] = []
    at, found = 0, _COMMENT.search(gap)
    while found is not None:
        end = found.end()
        depth = int(found[0] == "/*")
        while depth and (bracket := _BRACKET.search(gap, end)) is not None:
            depth += 1 if bracket[0] == "/*" else -1
            end = bracket.end()
        lines = gap.count("\n", at, found.start())
        (above if lines or above or fresh else behind).append(_Comment(gap[found.start() : end].rstrip(), lines > 1))
        at, found = end, _COMMENT.search(gap, end)
    return behind, above, gap.count("\n", at) > 1


def _grouped(words: Iterator[_Word]) -> list[_Item]:
    """Return words up to a closing bracket, which comes last, or to the end."""
    found: list[_Item] = []
    for word in words:
        if word.text in (")", "]"):
            return [*found, word]
        if word.text not in ("(", "["):
            last = found[-1] if found else None
            if word.text == "," and isinstance(last, _Word) and last.ends_line and not (word.above or word.behind):
                found[-1] = replace(last, behind=())  # its comment comes behind the comma
                found.append(replace(word, behind=last.behind))
                continue
            found.append(word)
            continue
        inside = _grouped(words)
        closing = inside.pop()
        assert isinstance(closing, _Word)
        found.append(_Group(word, tuple(inside), closing))
    return found


# --- lines --------------------------------------------------------------------------------------------------------


def _query(items: _Items, room: int) -> list[str]:
    """Return the lines of a query, at least one for each clause."""
    return [line for each in _clauses(items) for line in _lines(each, room)]


def _lines(items: _Items, room: int) -> list[str]:
    """Return the lines of items: one if they fit."""
    above = _first(items[0]).above
    if above:
        return [*above, *_lines([_bare(items[0]), *items[1:]], room)]
    flat = _flat(items)
    if flat is not None and len(flat.partition(" --")[0].partition("\n")[0]) <= room:
        return [flat]
    clauses = _clauses(items)
    if len(clauses) > 1:
        return _query(items, room)
    count = _words_of_clause(items)
    if 0 < count < len(items):
        return _clause(items[:count], items[count:], room)
    parts = _split(items, (",",), behind=True)
    if len(parts) > 8 and all(isinstance(each, _Word) and (each.literal or each.text == ",") for each in items):
        return _filled(items, room)
    if len(parts) > 1:
        return [line for each in parts for line in _lines(each, room)]
    parts = _conditions(items)
    if len(parts) > 1:
        return [line for each in parts for line in _hanging(_lines(each, room - len(_STEP)))]
    parts = _cases(items)
    if len(parts) > 1:
        inner = [_STEP + line for each in parts[1:-1] for line in _hanging(_lines(each, room - 2 * len(_STEP)))]
        return [*_lines(parts[0], room), *inner, *_lines(parts[-1], room)]
    return _expanded(items, room)


def _clause(head: _Items, content: _Items, room: int) -> list[str]:
    """Return the lines of a clause that does not fit into one."""
    begin = _flat(head)
    inner = room - len(_STEP)
    if begin is not None and not _ends_line(head) and not _first(content[0]).above:
        sides = _split(content, ("ON", "USING"))
        if _text(head[-1]) == "JOIN" and len(sides) == 2:
            source = _lines(sides[0], room - len(begin) - 1)
            return [f"{begin} {source[0]}", *source[1:], *(_STEP + each for each in _lines(sides[1], inner))]
        if len(_split(content, (",",), behind=True)) == len(_conditions(content)) == 1:
            lines = _lines(content, room - len(begin) - 1)
            return [f"{begin} {lines[0]}", *lines[1:]]
    return [*_lines(head, room), *(_STEP + each for each in _lines(content, inner))]


def _expanded(items: _Items, room: int) -> list[str]:
    """Return the lines of items whose longest bracket is on lines of its own, or else as they fill lines."""
    groups = [(each, at) for at, each in enumerate(items) if isinstance(each, _Group) and each.inside]
    if not groups:
        return _filled(items, room)
    group, at = max(groups, key=lambda each: len(_flat(each[0].inside) or " " * _WIDTH))
    return [
        *_lines([*items[:at], group.opening], room),
        *(_STEP + each for each in _lines(group.inside, room - len(_STEP))),
        *_lines([group.closing, *items[at + 1 :]], room),
    ]


def _filled(items: _Items, room: int) -> list[str]:
    lines: list[str] = []
    ended = True
    for word in _spread(items):
        new = ended or bool(word.above) or (not word.glued and len(lines[-1]) + 1 + len(word.text) > room)
        if new:
            lines += [*word.above, str(word)]
        else:
            lines[-1] += ("" if word.glued else " ") + str(word)
        ended = word.ends_line
    return _hanging(lines)


def _hanging(lines: list[str]) -> list[str]:
    return [*lines[:1], *(_STEP + each for each in lines[1:])]


# --- parts --------------------------------------------------------------------------------------------------------


def _flat(items: _Items) -> str | None:
    """Return items on one line; None if a comment among them needs lines."""
    words = [*_spread(items)]
    if any(each.above for each in words[1:]) or any(each.ends_line for each in words[:-1]):
        return None
    return "".join(("" if each.glued or not at else " ") + str(each) for at, each in enumerate(words))


def _spread(items: _Items) -> Iterator[_Word]:
    for each in items:
        if isinstance(each, _Word):
            yield each
        else:
            yield each.opening
            yield from _spread(each.inside)
            yield each.closing


def _first(item: _Item) -> _Word:
    return item if isinstance(item, _Word) else item.opening


def _bare(item: _Item) -> _Item:
    bare = replace(_first(item), above=())
    return replace(item, opening=bare) if isinstance(item, _Group) else bare


def _ends_line(items: _Items) -> bool:
    return (items[-1] if isinstance(items[-1], _Word) else items[-1].closing).ends_line


def _text(item: _Item) -> str:
    """Return a keyword or sign in capitals; nothing for a name, a literal or a bracket."""
    return (
        item.text.upper() if isinstance(item, _Word) and not item.literal and (item.keyword or item.text == ",") else ""
    )


def _split(items: _Items, words: Sequence[str], *, behind: bool = False) -> list[list[_Item]]:
    """Return parts that begin with one of the words, or end with it."""
    parts: list[list[_Item]] = [[]]
    for at, each in enumerate(items):
        if _text(each) in words and not behind and at:
            parts.append([])
        parts[-1].append(each)
        if _text(each) in words and behind and at + 1 < len(items):
            parts.append([])
    return parts


def _clauses(items: _Items) -> list[list[_Item]]:
    texts = [_text(each) for each in items]
    over = "SELECT" not in texts
    parts: list[list[_Item]] = [[]]
    for at, each in enumerate(items):
        before = texts[at - 1] if at else ""
        join = (
            texts[at] in _JOINS and before not in _JOINS and not isinstance(items[min(at + 1, len(items) - 1)], _Group)
        )
        clause = texts[at] in _CLAUSES and not (texts[at] == "FROM" and before == "DISTINCT" and "IS" in texts[:at])
        if at and (join or clause or (over and texts[at] in _OF_OVER)):
            parts.append([])
        parts[-1].append(each)
    return parts


def _words_of_clause(items: _Items) -> int:
    """Return how many words begin a clause: SELECT DISTINCT, LEFT JOIN."""
    texts = [_text(each) for each in items]
    if texts[0] in _JOINS:
        return next((at for at, each in enumerate(texts) if each not in _JOINS), len(texts))
    if texts[0] in _CLAUSES | _OF_OVER | {"WITH", "ON", "USING", "WHEN"}:
        return 1 + (texts[0] in _SETS | {"SELECT"} and len(texts) > 1 and texts[1] in ("ALL", "DISTINCT"))
    return 0


def _conditions(items: _Items) -> list[list[_Item]]:
    """Return parts that begin with OR, or else with AND."""
    parts = _split(items, ("OR",))
    if len(parts) > 1:
        return parts
    parts, between = [[]], False
    for each in items:
        text = _text(each)
        if text == "AND" and not between and parts[-1]:
            parts.append([])
        between = text == "BETWEEN" or (between and text != "AND")
        parts[-1].append(each)
    return parts


def _cases(items: _Items) -> list[list[_Item]]:
    """Return what comes before the first WHEN of a CASE, each WHEN and ELSE, and END with what follows."""
    parts: list[list[_Item]] = [[]]
    depth = 0
    ended = False
    for each in items:
        text = _text(each)
        depth -= text == "END"
        begins = (text in ("WHEN", "ELSE") and depth == 1) or (text == "END" and depth == 0)
        if begins and not ended:
            parts.append([])
            ended = text == "END"
        depth += text == "CASE"
        parts[-1].append(each)
    return parts
