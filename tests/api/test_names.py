"""What ``import upstream`` offers: each name is there, lazily, and star imports bring no more."""

import subprocess
import sys

import pytest

import upstream
from upstream import aggregates


def test_each_name_is_there_and_listed():
    assert len(set(upstream.__all__)) == len(upstream.__all__)
    for name in upstream.__all__:
        assert getattr(upstream, name) is not None
        assert name in dir(upstream)
    with pytest.raises(AttributeError, match="no attribute 'latests'"):
        _ = upstream.latests  # pyright: ignore[reportAttributeAccessIssue]


def test_the_functions_are_those_of_aggregates():
    assert all(callable(getattr(aggregates, name)) for name in aggregates.__all__)
    names = set(aggregates.__all__) & set(upstream.__all__)
    assert names == {"avg", "count", "max", "min", "sum"}
    for name in names:
        assert getattr(upstream, name) is getattr(aggregates, name)


@pytest.mark.parametrize("name", ["sum", "min", "max"])
def test_names_of_built_in_functions_are_aggregates(name):
    assert repr(getattr(upstream, name)("speed")) == f"{name}(speed)"


def test_errors_have_a_public_name():
    from upstream.conf import errors as own
    from upstream.errors import TableError

    assert upstream.errors.TableError is TableError is own.TableError
    classes = {name for name, each in vars(own).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert set(upstream.errors.__all__) == classes
    for name in classes:
        assert issubclass(getattr(upstream.errors, name), upstream.errors.UpstreamError)


def test_the_package_alone_imports_nothing_heavy():
    """Spark's workers import it many times over."""
    program = (
        "import sys, upstream; "
        "print([name for name in ('pyarrow', 'polars', 'pyspark', 'deltalake') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
