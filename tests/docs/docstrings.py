"""The examples of the public names' docstrings, and which of them need Spark."""

import ast
import builtins
import doctest
import re
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import upstream as us

ON_SPARK = {"spark", "stream", "other"}
NAMES = {"us": us, "pl": pl, "pa": pa, "pc": pc, "np": np}


def code_of(text: str) -> ast.Module:
    return ast.parse("".join(each.source for each in doctest.DocTestParser().get_examples(text)))


def free_names(text: str) -> set[str]:
    """Names that an example takes from outside."""
    used: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(code_of(text)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
        elif isinstance(node, ast.ExceptHandler | ast.FunctionDef | ast.ClassDef):
            bound.add(node.name or "")
    stored_first = {name for name in bound & ON_SPARK if re.search(rf"^>>> {name} = ", text, re.MULTILINE)}
    return (used - bound - set(dir(builtins))) | ((used & ON_SPARK) - stored_first)


def needs_spark(name: str, text: str) -> bool:
    return bool(free_names(text) & ON_SPARK) or name == "session"


def public() -> list[Any]:
    """The entries of the reference."""
    from kit import modules

    return [entry for part in modules.tool("reference").entries().values() for entry in part]


def examples() -> dict[str, str]:
    return {entry.name: entry.parts["Examples"] for entry in public() if "Examples" in entry.parts}
