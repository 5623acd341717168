"""How many rows are dead letters, the first reason, and where they are."""

import pyarrow as pa

from upstream.delta_format.append_table import DeadLetterWriter, letters_of
from upstream.sink.figures.dead_letters import NO_LETTERS, dead_letter_figures, letter_folders, shown_letters
from upstream.storage.folder import TableFolder


def write(folder: TableFolder, number: int, *reasons: str) -> None:
    writer = DeadLetterWriter(folder, "query", number)
    rows = pa.table({"value": list(reasons)})
    writer.write(letters_of(rows, batch=number, origin="feed/0.csv:line 2", reason=pa.array(reasons)))
    writer.commit()


def test_the_rows_of_all_places_are_counted_and_the_first_reason_stays(tmp_path):
    folders = letter_folders(str(tmp_path / "table"), str(tmp_path / "checkpoint"), {})
    assert dead_letter_figures(folders) == NO_LETTERS
    assert dead_letter_figures(folders).text == ""
    beside, within, _ = folders
    write(within, 0, "no key", "no time")
    assert dead_letter_figures(folders).text == (
        "2 rows are dead letters, the first of feed/0.csv:line 2: no key. "
        f"To see them: upstream show {tmp_path / 'checkpoint' / 'dead_letters'}"
    )
    write(within, 1, "another")
    write(beside, 0, "late")
    figures = dead_letter_figures(folders)
    assert (figures.rows, figures.reason, figures.place) == (4, "late", beside.location)
    assert dead_letter_figures([within]).reason == "no key"


def test_one_row_and_a_long_reason(tmp_path):
    folder = TableFolder(str(tmp_path / "letters"))
    write(folder, 0, "x" * 500)
    text = dead_letter_figures([folder]).text
    assert text.startswith("1 row is a dead letter of feed/0.csv:line 2: xxx")
    assert "x…. To see them" in text


def test_a_damaged_table_is_named_and_ends_nothing(tmp_path):
    folder = TableFolder(str(tmp_path / "letters"))
    write(folder, 0, "no key")
    (tmp_path / "letters" / "_delta_log" / f"{1:020}.json").write_text("{")
    assert shown_letters([folder]).text.startswith("The dead letters cannot be counted: ")
