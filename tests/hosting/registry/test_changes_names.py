import pytest
from kit.failures import misused

from upstream.hosting.registry.changes import check_name, found, known_name


@pytest.mark.parametrize("name", ["q", "per_route", "2nd", "Größe", "a-b", "x" * 100])
def test_words_are_names(name):
    assert check_name(name, "a query") == name


@pytest.mark.parametrize(
    "name", ["", "7", "12345", "a/b", "a\\b", "..", ".q", "_q", "-q", "a b", "a=b", "a.b", "q\n", "é" * 51, None, 3]
)
def test_what_cannot_name_a_folder_is_refused(name):
    misused("cannot name a query", check_name, name, "a query")


def test_names_are_found_whatever_their_case_or_answered_with_near_ones():
    assert known_name("SLOW", ["slow"], "query") == "slow"
    misused(r"no query 'slwo'.*did you mean 'slow'", known_name, "slwo", ["slow", "per_route"], "query")
    misused("there are: per_route, slow", known_name, "zzz", ["slow", "per_route"], "query")
    misused("register a query first", known_name, "zzz", [], "query")
    assert found("PER_route", ["slow", "Per_Route"]) == "Per_Route"
    assert found("per", ["slow", "Per_Route"]) is None
