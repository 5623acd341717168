"""Sources of rows in one word for the shell: a path, or an address."""

from __future__ import annotations

from ..conf.errors import OptionError

__all__ = ["source_options"]

_KAFKA = "kafka://"
_LATEST = "latest:"


def source_options(source: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the path, if `source` is one, and the options that an address implies.

    Addresses are ``kafka://host:port,host:port/topic,topic``, and ``latest:`` with the path of a table that another
    query writes.
    """
    if source is not None and source.startswith(_LATEST):
        return source[len(_LATEST) :], {"connector": "latest"}
    if source is None or not source.startswith(_KAFKA):
        return source, {}
    servers, _, topics = source[len(_KAFKA) :].partition("/")
    if not servers or not topics.strip("/"):
        raise OptionError(
            f"--from {source!r}",
            expected="kafka://host:port/topic",
            hint="name a broker and a topic; several of either are separated by commas",
        )
    return None, {"connector": "kafka", "kafka.bootstrap.servers": servers, "subscribe": topics.strip("/")}
