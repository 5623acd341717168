"""Errors name what to run."""

import re

import pytest
from kit.places import ROOT

from upstream.conf.errors import pip_install


@pytest.mark.parametrize(
    ("extra", "packages"),
    [("kafka", ["confluent-kafka[schemaregistry]", "fastavro"]), ("ui", ["starlette", "uvicorn"])],
)
def test_the_command_for_an_extra_names_its_packages_as_no_index_has_this_one(extra, packages):
    assert re.findall(r"'([^'<>=]+)[<>=][^']*'", pip_install(extra)) == packages


def test_an_extra_that_the_metadata_lack_is_installed_from_a_clone():
    assert pip_install("nothing") == "pip install '.[nothing]'"


def test_no_page_and_no_message_installs_this_package_from_an_index():
    places = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("[a-z]*/**/*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in places if "tests" not in path.parts}
    assert [str(path) for path, text in texts.items() if re.search("install ['\"]?pyspark-upstream", text)] == []
