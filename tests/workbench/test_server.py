"""What the workbench's server answers besides its features."""

from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from upstream.conf.errors import OptionError
from upstream.workbench import server
from upstream.workbench.watch import Watch


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


def test_a_port_that_is_taken_is_refused_with_words():
    with server.listen("127.0.0.1", 0) as taken, pytest.raises(OptionError, match="choose another port"):
        server.listen("127.0.0.1", taken.getsockname()[1])


def test_beside_a_job_it_serves_with_a_token_of_its_own_until_the_job_ends(tmp_path):
    with server.beside(Watch([str(tmp_path)], {})) as address:
        place = urlsplit(address)
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"http://{place.netloc}/api/v1/tables", timeout=10)
        bearer = {"Authorization": "Bearer " + place.query.removeprefix("token=")}
        with urlopen(Request(f"http://{place.netloc}/api/v1/tables", headers=bearer), timeout=10) as answer:
            assert answer.status == 200
    with pytest.raises(URLError, match="refused"):
        urlopen(address, timeout=10)
