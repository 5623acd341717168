"""The beginning of a registry: the folder of its tables, and the streams for its queries."""

from __future__ import annotations

from collections.abc import Iterable

from ...conf.errors import OptionError, UpstreamError
from ...conf.locations import real_location
from ..language import bind
from ..relations.nodes import Stream
from .journal import Journal
from .names import check_name, found
from .places import check_folder, check_stream
from .registry import registry_now
from .settings import Settings

__all__ = ["SHARDS", "define_stream", "opened"]

SHARDS = 8
"""The default number of parts of the state."""


def opened(checkpoint: str, to: str | None, shards: int | None) -> Settings:
    """Return the settings of a checkpoint; begin a new checkpoint with them.

    None for `to` or `shards` keeps the checkpoint's own. Raises OptionError if they differ from the checkpoint's, a new
    checkpoint has no `to`, or the tables would be in the checkpoint.
    """
    journal = Journal(checkpoint)
    settings = journal.settings()
    if settings is not None:
        settings.check_same(to, shards)
        return settings
    if to is None:
        raise OptionError(
            f"{journal.location} has no queries yet, and 'to' is missing",
            expected="the folder in which each query has its table",
            hint="give to=…, or correct the checkpoint",
        )
    settings = Settings(to, SHARDS if shards is None else shards)
    check_folder(to, [("the checkpoint", checkpoint)])
    journal.write_settings(settings)
    return settings


def define_stream(checkpoint: str, stream: Stream, inputs: Iterable[str] = ()) -> Settings:
    """Define a stream for queries; until the job has run, this can also redefine it.

    `inputs` are the paths that its sources read. Raises OptionError if the name is taken, the paths meet tables of
    queries, or a registered query does not fit. Raises CheckpointError if the job has run without this definition.
    """
    check_name(stream.name, "a stream")
    journal = Journal(checkpoint)
    registry = registry_now(checkpoint)
    paths = tuple(map(real_location, inputs))
    check_stream(stream.name, paths, registry)
    known = dict(registry.settings.inputs).get(stream.name) == paths or journal.started()
    if registry.settings.stream(stream.name) == stream and known:
        return registry.settings
    relations = [each for each in registry.catalog.relations if registry.settings.stream(each) is None]
    taken = found(stream.name, [*registry.queries, *registry.catalog.views, *relations])
    if taken is not None:
        raise OptionError(
            f"there is a query, a view or a relation '{taken}' already", hint="choose another name for the stream"
        )
    changed = registry.settings.with_stream(stream, paths)
    catalog = changed.catalog()
    for each in relations:
        catalog = catalog.with_stream(registry.catalog.streams[each])
    for name, text in registry.catalog.views.items():
        catalog = catalog.with_view(name, text)
    for each in registry.active.values():
        try:
            bind(each.text, catalog.in_zone(each.time_zone))
        except UpstreamError as error:
            raise OptionError(
                f"the query '{each.name}' does not fit the new definition of '{stream.name}': {error}",
                hint=f"alter or drop '{each.name}' first",
            ) from error
    journal.write_settings(changed)
    return changed
