"""What the workbench's server answers besides its features."""

import pytest

from upstream.conf.errors import OptionError
from upstream.workbench import server


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
