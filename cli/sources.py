"""Where rows come from, in one word for the shell: a path, or the address of topics."""

from __future__ import annotations

from ..conf.errors import OptionError

__all__ = ["source_options"]

_KAFKA = "kafka://"
_LATEST = "latest:"


def source_options(source: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the path, if it is one, and the options that an address implies.

    Parameters
    ----------
    source
        A path, ``kafka://host:port,host:port/topic,topic``, or ``latest:`` and the path of a table that another query
        writes.

    Raises
    ------
    OptionError
        The address names no broker or no topic.
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
