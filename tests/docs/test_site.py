"""The site: a broken link or reference fails its build."""

import pytest
from kit.places import ROOT
from kit.programs import run


@pytest.mark.slow
def test_the_site_is_built():
    done = run("make", "--no-print-directory", "docs", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (ROOT / "dist" / "site" / "index.html").is_file()
