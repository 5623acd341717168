"""What the workbench's server answers besides its features."""

import json
import sys
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from kit.scenes import every_state

import upstream as us
from upstream.conf.errors import EnvironmentMissingError, OptionError, TableError
from upstream.workbench import server
from upstream.workbench.processes import Workbench

from .hosted import Job


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd", "/static/"]
)
def test_no_file_beside_the_static_ones_is_given(known, path):
    assert known.get(path).status_code == 404


def test_pages_have_neither_scripts_nor_styles_in_their_markup():
    for page in server.STATIC.rglob("*.html"):
        text = page.read_text()
        assert "style=" not in text
        assert "<style" not in text
        assert all("src=" in part.split(">", 1)[0] for part in text.split("<script")[1:])
        assert "://" not in text


def test_errors_are_problem_documents_and_a_fault_of_ours_shows_nothing_of_itself(known, caplog):
    assert known.get("/api/v1/wrong").json() == {"error": "rows='many'", "expected": "a number", "hint": ""}
    assert known.get("/api/v1/wrong").status_code == 400
    assert known.get("/api/v1/stale").status_code == 409
    assert known.get("/api/v1/events?table=other").status_code == 404
    broken = known.get("/api/v1/broken")
    assert broken.status_code == 500
    assert "division" not in broken.text
    assert "ZeroDivisionError" in caplog.text


def of(workbench: Workbench, path: str) -> Any:
    place = urlsplit(workbench.address)
    bearer = {"Authorization": "Bearer " + place.query.removeprefix("token=")}
    with urlopen(Request(f"http://{place.netloc}/api/v1/{path}", headers=bearer)) as answer:
        return json.load(answer)


def test_beside_a_job_it_serves_with_a_token_of_its_own_until_it_is_stopped(tmp_path):
    with us.ui(tmp_path) as workbench:
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"http://{urlsplit(workbench.address).netloc}/api/v1/tables")
        assert of(workbench, "tables")["control"]
        assert f'href="{workbench.address}"' in workbench._repr_html_()
    with pytest.raises(URLError, match="refused"):
        urlopen(workbench.address)


def test_it_shows_the_table_or_the_queries_that_it_is_given(tmp_path):
    running = every_state(tmp_path, batches=2)["running"]
    Job(tmp_path)
    for shown, name in ((running.path, "running"), (us.LatestTable(running.path), "running")):
        with us.ui(shown, read_only=True) as workbench:
            found = of(workbench, "tables")
            assert ([each["name"] for each in found["tables"]], found["control"]) == ([name], False)
    with us.ui(us.queries(checkpoint=tmp_path / "cp")) as workbench:
        assert of(workbench, "tables")["checkpoints"] == [str(tmp_path / "cp")]


def test_what_has_no_table_is_refused(tmp_path):
    with pytest.raises(OptionError, match=r"got int.*give the path"):
        us.ui(3)  # type: ignore[arg-type]
    with pytest.raises(TableError, match="no folder"):
        us.ui(tmp_path / "absent")


def test_without_its_packages_it_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(EnvironmentMissingError, match=r"needs the extra `ui`.*uvicorn.*pip install 'starlette"):
        us.ui(tmp_path)
