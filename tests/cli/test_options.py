import json
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from kit.registries import begun, register
from typer.testing import CliRunner

from upstream.cli.failures import CommandFailure
from upstream.cli.options import command_defaults, name_values, read_settings, storage_options, with_pairs_of_the_file

from .in_process import done, refused


def test_pairs():
    assert name_values(None, "--conf") == {}
    assert name_values([" a =1", "b=x=y", "c="], "--conf") == {"a": "1", "b": "x=y", "c": ""}
    assert name_values(["a=1", "a=2"], "--conf") == {"a": "2"}
    assert storage_options(["storage.region=eu", "storage.a.b=c=d"]) == {"region": "eu", "a.b": "c=d"}
    with pytest.raises(CommandFailure, match=r"--option 'region' is not an option of an object store") as caught:
        storage_options(["storage.key=1", "region=eu"])
    assert caught.value.code == 2


@pytest.mark.parametrize("wrong", ["a", "=1", " =1", ""])
def test_what_is_no_pair(wrong):
    with pytest.raises(CommandFailure, match=f"--conf {wrong!r} is not NAME=VALUE") as caught:
        name_values(["a=1", wrong], "--conf")
    assert caught.value.code == 2


KNOWN = {
    "latest": {"from": "source", "key": "key", "once": "once", "option": "option", "conf": "conf"},
    "show": {"limit": "limit", "option": "option"},
    "plan": {"rate": "rate"},
}


def defaults(folder: Path, text: str, **environment: str) -> dict[str, Any]:
    path = folder / "upstream.toml"
    path.write_text(text, encoding="utf-8")
    return command_defaults(read_settings(path, environment), KNOWN, path)


def test_options_are_defaults_of_their_command(tmp_path):
    text = '[latest]\nfrom = "feed/"\nkey = ["a", "b"]\nonce = true\n[show]\nlimit = 5\n'
    assert defaults(tmp_path, text) == {
        "latest": {"source": "feed/", "key": ["a", "b"], "once": True},
        "show": {"limit": 5},
    }


def test_variables_come_from_the_environment_and_their_values_are_not_read_again(tmp_path):
    text = '[latest.option]\n"kafka.sasl.password" = "${WORD}"\nskipRows = 2\nheader = false\n'
    expected = ["kafka.sasl.password=se=cret", "skipRows=2", "header=false"]
    assert defaults(tmp_path, text, WORD="se=cret") == {"latest": {"option": expected}}
    assert defaults(tmp_path, '[latest]\nfrom = "a${A}$$b"\n', A="${B}") == {"latest": {"source": "a${B}$b"}}
    assert defaults(tmp_path, '[latest]\nkey = ["${A}"]\n', A="k") == {"latest": {"key": ["k"]}}


def test_storage_is_for_every_command_that_takes_options(tmp_path):
    text = '[storage]\naws_secret_access_key = "${S}"\n[latest.option]\nheader = "true"\n[plan]\nrate = 3\n'
    stored = "storage.aws_secret_access_key=x"
    assert defaults(tmp_path, text, S="x") == {
        "latest": {"option": [stored, "header=true"]},
        "show": {"option": [stored]},
        "plan": {"rate": 3},
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[latest]\nform = "${A}"\n', "has no option 'form'. Did you mean 'from'?"),
        ('[latst]\nfrom = "x"\n', "Did you mean 'latest'?"),
        ('[latest]\nzzz = "x"\n', "There are: conf, from, key, once, option."),
        ('from = "x"\n', "'from' is not in a table"),
        ('[latest]\nfrom = "${NOWHERE}"\n', "latest.from: the environment variable 'NOWHERE' is not set"),
        ('[latest.option]\na = "${NOWHERE}"\n', "latest.option.a: the environment variable"),
        ('[latest]\nfrom = "5$"\n', "a single $"),
        ('[latest]\noption = "a=b"\n', "'option' is a table"),
        ("[latest.from]\na = 1\n", "'from' takes a value"),
        ("[latest\n", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named_without_a_secret(tmp_path, text, words):
    with pytest.raises(CommandFailure) as failed:
        defaults(tmp_path, text, A="hunter2")
    assert failed.value.code == 2
    assert words in failed.value.sentence
    assert "hunter2" not in str(failed.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CommandFailure, match=r"absent\.toml"):
        read_settings(tmp_path / "absent.toml", {})


def test_the_command_line_wins(tmp_path):
    """``plan`` needs no table: its file gives two options, the command line one of them again."""
    (tmp_path / "upstream.toml").write_text('[plan]\nrate = 10\nkeys = 5\ncost = "1ms"\nquick = true\n')
    assert "of 7 keys" in done("plan", "--keys", "7", cwd=tmp_path)
    other = tmp_path / "other.toml"
    other.write_text("[plan]\nrates = 10\n")
    assert "Did you mean 'rate'?" in refused("--config", other, "plan", cwd=tmp_path)


def test_pairs_of_the_file_and_of_the_command_line_are_added():
    """Of two with one name the command line's counts."""
    app = typer.Typer()

    @app.command()
    def run(option: Annotated[list[str] | None, typer.Option(callback=with_pairs_of_the_file)] = None) -> None:
        print(json.dumps(name_values(option, "--option")))

    @app.callback()
    def root(context: typer.Context) -> None:
        context.default_map = {"run": {"option": ["a=1", "b=2"]}}

    found = CliRunner().invoke(app, ["run", "--option", "b=3", "--option", "c=4"])
    assert json.loads(found.output) == {"a": "1", "b": "3", "c": "4"}


def test_tables_of_options_reach_their_command(tmp_path):
    (tmp_path / "upstream.toml").write_text('[storage]\nregion = "eu"\n[status]\njson = true\n')
    register(begun(tmp_path), "q")
    assert json.loads(done("status", "cp", cwd=tmp_path))["name"] == "q"
    (tmp_path / "upstream.toml").write_text('[status.option]\nregion = "eu"\n')
    assert "--option 'region'" in refused("status", "cp", cwd=tmp_path)
