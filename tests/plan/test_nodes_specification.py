"""Operators say what they do in the words of today's arguments, whatever words a checkpoint has."""

from collections.abc import Mapping

import pytest

from upstream.conf.errors import CheckpointError
from upstream.plan.fingerprint import FingerprintPart, check_same
from upstream.plan.nodes import described, in_words_of_today


class Windows:
    """Of nothing that runs."""

    def identity(self) -> Mapping[str, str]:
        return {"key": "k", "emit": "all+early", "method": "paned"}

    def changeable(self) -> Mapping[str, str]:
        return {"tombstones": ""}


def test_windows_are_described_as_they_are_written():
    assert described("window", Windows()) == "window, output all, early=True, method paned"
    assert described("window", Windows(), hidden=("method",)) == "window, output all, early=True"


def test_settings_that_differ_differ_in_todays_words_too():
    emissions = ["lazy", "all", "eager", "early", "all+early"]
    assert len({in_words_of_today({"emit": emit})["output"] for emit in emissions}) == len(emissions)
    assert in_words_of_today({"policy": "lazy"}) == {"policy": "lazy"}


def test_a_changed_emission_is_named_as_it_is_written():
    def of(emit: str):
        return ((FingerprintPart("upstream-windows/0", "window", {"emit": emit}),),)

    check_same(of("early"), of("early"))
    with pytest.raises(CheckpointError, match=r"has output 'all, early=True', and had 'latest'"):
        check_same(of("lazy"), of("all+early"))
