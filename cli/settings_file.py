"""Options of the command line from a file, ``upstream.toml``."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .failures import Failure

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

__all__ = ["DEFAULT_FILE", "command_defaults", "read_settings"]

DEFAULT_FILE = "upstream.toml"
"""The file that is read from the working directory, if it exists and no other one is named."""

_VARIABLE = re.compile(r"\$(?:\$|\{([^}]*)\}|)")
_PAIRS = {"option", "conf"}
_STORAGE = "storage"


def read_settings(path: Path, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Read the options of each command, by their long names without dashes; an invalid file raises a Failure.

    Options that are pairs (``--option``, ``--conf``) are tables. The table ``storage`` applies to every command with an
    object store. ``${NAME}`` is a variable of the `environment`, which keeps secrets out of the file; ``$$`` is a
    dollar sign.
    """
    try:
        parsed = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}.", 2) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"{path} is not TOML: {error}.", 2) from error
    for command, options in parsed.items():
        if not isinstance(options, dict):
            raise Failure(f"{path}: {command!r} is not in a table. Write [latest] above the options of a command.", 2)
    return {
        command: {name: _resolved(value, f"{path}: {command}.{name}", environment) for name, value in options.items()}
        for command, options in parsed.items()
    }


def command_defaults(
    settings: Mapping[str, Mapping[str, Any]], parameters: Mapping[str, Mapping[str, str]], path: Path
) -> dict[str, dict[str, Any]]:
    """Return the defaults for Click, by command and parameter; an unknown command or option raises a Failure.

    `parameters` has the parameter of each command's long options. A command of a group has the group's name before its
    own. `path` is for errors.
    """
    stored = _as_given(
        "option", {f"{_STORAGE}.{name}": each for name, each in settings.get(_STORAGE, {}).items()}, path
    )
    defaults = {
        command: {known["option"]: stored} for command, known in parameters.items() if stored and "option" in known
    }
    for command, options in _by_command(settings, parameters).items():
        if command not in parameters:
            raise Failure(f"{path}: there is no command {command!r}.{_nearest(command, parameters)}", 2)
        known = parameters[command]
        for name in options:
            if name not in known:
                raise Failure(f"{path}: `upstream {command}` has no option {name!r}.{_nearest(name, known)}", 2)
        given = {known[name]: _as_given(name, value, path) for name, value in options.items()}
        if stored and "option" in options:
            given[known["option"]] = [*stored, *given[known["option"]]]
        defaults[command] = {**defaults.get(command, {}), **given}
    nested: dict[str, dict[str, Any]] = {}
    for command, given in defaults.items():
        group, _, inner = command.rpartition(" ")
        place = nested.setdefault(group, {}) if group else nested
        place.setdefault(inner, {}).update(given)
    return nested


def _by_command(
    settings: Mapping[str, Mapping[str, Any]], parameters: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, Any]]:
    """Return the options of each command; a table within that of a group is a command's."""
    found: dict[str, dict[str, Any]] = {}
    for command, options in settings.items():
        if command == _STORAGE:
            continue
        inner = {name for name in options if f"{command} {name}" in parameters}
        found[command] = {name: value for name, value in options.items() if name not in inner}
        found |= {f"{command} {name}": options[name] for name in inner}
    return found


def _resolved(value: Any, place: str, environment: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _variable(found, place, environment), value)
    if isinstance(value, list):
        return [_resolved(each, place, environment) for each in value]
    if isinstance(value, dict):
        return {name: _resolved(each, f"{place}.{name}", environment) for name, each in value.items()}
    return value


def _variable(found: re.Match[str], place: str, environment: Mapping[str, str]) -> str:
    if found[0] == "$$":
        return "$"
    if found[1] is None:
        raise Failure(f"{place}: a single $. Write ${{NAME}} for an environment variable, $$ for a dollar sign.", 2)
    if found[1] not in environment:
        raise Failure(f"{place}: the environment variable {found[1]!r} is not set.", 2)
    return environment[found[1]]


def _as_given(name: str, value: Any, path: Path) -> Any:
    """Return a value in its form on the command line."""
    if name in _PAIRS:
        if not isinstance(value, dict):
            raise Failure(f'{path}: {name!r} is a table: write "NAME" = "VALUE" below [<command>.{name}].', 2)
        return [f"{key}={_text(each)}" for key, each in value.items()]
    if isinstance(value, dict):
        raise Failure(f"{path}: {name!r} takes a value, not a table.", 2)
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(sorted(known))}."
