import pytest

from upstream.cli.sql import source_options


@pytest.mark.parametrize(
    ("source", "path", "options"),
    [
        (None, None, {}),
        ("feed/*.csv", "feed/*.csv", {}),
        ("latest:./every speed", "./every speed", {"connector": "latest"}),
    ],
)
def test_a_source_in_one_word(source, path, options):
    assert source_options(source) == (path, options)
