"""What a release holds beside the wheel."""

import json
import re

from kit import modules
from kit.places import ROOT

from upstream.conf import jars

LOCK = (ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_each_locked_package_and_jar_is_in_the_bill_with_the_hashes_that_are_checked():
    bill = modules.tool("bill_of_materials").bill("1.2.3")
    assert bill["metadata"]["component"]["version"] == "1.2.3"
    libraries = [each for each in bill["components"] if "purl" in each]
    assert [each["name"] for each in libraries] == re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE)
    assert sum(len(each["hashes"]) for each in libraries) == LOCK.count("--hash=sha256:")
    assert all(each["hashes"] for each in libraries)
    assert {each["name"] for each in bill["components"] if "purl" not in each} == set(jars.JARS)


def test_versions_end_where_markers_begin():
    lock = (
        'a==1.0 ; python_full_version < "3.11" \\\n    --hash=sha256:'
        + "0" * 64
        + "\nb-c==2 \\\n    --hash=sha256:"
        + "1" * 64
    )
    found = modules.tool("bill_of_materials").packages(lock)
    assert [(each["name"], each["version"], each["hashes"][0]["content"][0]) for each in found] == [
        ("a", "1.0", "0"),
        ("b-c", "2", "1"),
    ]
    assert found[0]["purl"] == "pkg:pypi/a@1.0"


def test_the_bill_is_the_same_each_time():
    tool = modules.tool("bill_of_materials")
    assert json.dumps(tool.bill("1")) == json.dumps(tool.bill("1"))


def test_the_container_copies_what_the_release_makes():
    lines = (ROOT / "tools" / "Containerfile").read_text(encoding="utf-8")
    copied = re.search(r"^COPY (.+) /tmp/$", lines, re.MULTILINE)
    assert copied is not None
    assert copied[1].split() == ["constraints.txt", "pyspark_upstream-@VERSION@-py3-none-any.whl"]
    assert "--require-hashes" in lines
    assert re.search(r"^USER (?!root)", lines, re.MULTILINE), "nothing needs root"
    assert re.match(r"(#.*\n)+FROM [\w./-]+:[\w.-]+\n", lines), "a version, not latest"
