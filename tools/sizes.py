"""Count what the package weighs: `make sizes` prints the figures, and `make sizes LOWER=1` lowers limits to them.

`tests/sizes.json` has the limits, and a test keeps the figures within them. A limit rises by hand alone, with the
reason in the commit.
"""

from __future__ import annotations

import ast
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "tests" / "sizes.json"
_APART = {"tests", "benchmarks", "tools", "docs", "examples", "build", "dist"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NOUNS = {
    "feed", "seed", "speed", "string", "timing", "landing", "hosting", "mapping", "setting", "thing", "casing",
    "recording", "testing", "finding", "reading", "ending", "heading", "beginning",
}  # fmt: skip


def modules() -> Iterator[Path]:
    """Yield the package's modules."""
    yield ROOT / "__init__.py"
    for folder in sorted(ROOT.iterdir()):
        if folder.is_dir() and folder.name[0] != "." and folder.name not in _APART:
            yield from sorted(folder.rglob("*.py"))


def is_participle(name: str) -> bool:
    """Return whether the last word of a name ends as participles do."""
    last = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)[-1].lower()
    return last not in _NOUNS and len(last) > 4 and last.endswith(("ing", "ed"))


def figures() -> dict[str, int]:
    """Return each figure by its name; less is better."""
    total: Counter[str] = Counter()
    lengths: list[int] = []
    classes: Counter[str] = Counter()
    for path in modules():
        text = path.read_text(encoding="utf-8")
        lines, tree = text.splitlines(), ast.parse(text)
        documented: set[int] = set()
        imports: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
                documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports |= set(range(node.lineno, (node.end_lineno or 0) + 1))
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
                total["names of classes that are participles"] += is_participle(node.name.strip("_"))
        other = (n not in documented | imports and bool(line.strip()) for n, line in enumerate(lines, 1))
        total += Counter({"lines": len(lines), "lines of docstrings": len(documented), "lines of code": sum(other)})
        if path.name != "__init__.py":
            lengths.append(len(lines))
            total["names of modules that are participles"] += is_participle(path.stem)
    public = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    listed = next(node for node in public.body if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node))
    assert isinstance(listed.value, ast.List)
    words = sum(
        len(page.read_text(encoding="utf-8").split()) for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    )
    tests = sum(path.read_text(encoding="utf-8").count("\n") for path in ROOT.glob("tests/**/*.py"))
    return {
        "modules": len(lengths),
        "modules of less than 60 lines": sum(length < 60 for length in lengths),
        **dict(sorted(total.items())),
        "names that classes share": sum(count > 1 for count in classes.values()),
        "public names": len(listed.value.elts),
        "words of documentation": words,
        "lines of tests": tests,
    }


def main() -> None:
    """Print the figures beside their limits; with ``--lower``, lower the limits."""
    found, limits = figures(), json.loads(LIMITS.read_text(encoding="utf-8")) if LIMITS.exists() else {}
    for name, value in found.items():
        print(f"{name:42} {value:>8,}  limit {limits.get(name, value):>8,}")
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in modules()]
    print(f"{'median length of a module':42} {statistics.median(lengths):>8,.0f}")
    lowered = {name: min(value, limits.get(name, value)) for name, value in found.items()}
    if sys.argv[1:] == ["--lower"]:
        LIMITS.write_text(json.dumps(lowered, indent=1) + "\n", encoding="utf-8")
    over = [name for name, value in found.items() if value > lowered[name]]
    if over:
        sys.exit(f"over the limit: {', '.join(over)}")


if __name__ == "__main__":
    main()
