"""Folders that others write into."""

from upstream.storage.folder import TableFolder


def test_links_that_lead_nowhere_are_passed_over(tmp_path):
    (tmp_path / "a").write_text("xy")
    (tmp_path / "sub").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nothing").symlink_to(tmp_path / "absent")
    folder = TableFolder(str(tmp_path))
    assert "a" in folder.names("")
    assert "loop" not in folder.names("")
    assert sorted((entry.name, entry.is_folder) for entry in folder.listing()) == [("a", False), ("sub", True)]
