import pytest

from upstream.cli.failures import CommandFailure
from upstream.cli.options import name_values, storage_options


def test_pairs():
    assert name_values(None, "--conf") == {}
    assert name_values([" a =1", "b=x=y", "c="], "--conf") == {"a": "1", "b": "x=y", "c": ""}
    assert name_values(["a=1", "a=2"], "--conf") == {"a": "2"}
    assert storage_options(["storage.region=eu", "storage.a.b=c=d"]) == {"region": "eu", "a.b": "c=d"}
    with pytest.raises(CommandFailure, match=r"--option 'region' is not an option of an object store") as caught:
        storage_options(["storage.key=1", "region=eu"])
    assert caught.value.code == 2


@pytest.mark.parametrize("wrong", ["a", "=1", " =1", ""])
def test_what_is_no_pair(wrong):
    with pytest.raises(CommandFailure, match=f"--conf {wrong!r} is not NAME=VALUE") as caught:
        name_values(["a=1", wrong], "--conf")
    assert caught.value.code == 2
