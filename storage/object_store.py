"""Conditional puts of objects by obstore, which takes delta-rs' options; Arrow's file systems cannot do them."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..conf.errors import EnvironmentMissingError, TableError, UpstreamError, pip_install
from ..conf.units import parse_duration_us

if TYPE_CHECKING:
    from obstore.store import ObjectStore


_LOG = logging.getLogger("upstream.object_store")

_Options = tuple[tuple[str, str], ...]

_TRIAL = "_upstream_put_if_absent"
_TRIAL_RETRIES = 2
# Support is permanent, but a refusal may have been fixed since.
_REFUSED_FOR_S = 60.0
_DO_WITHOUT = "queries do without where the option engine is left out: then buckets are rewritten"
_CLOUDS = ("aws_", "google_", "azure_")


def _duration(value: str) -> dt.timedelta:
    return dt.timedelta(microseconds=parse_duration_us(value))


# Options, by delta-rs' names, that obstore takes apart from the store's own, where it would panic over them: for its
# HTTP client as they are, for its retries as Python values.
_OF_CLIENT = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type",
    "disable_system_certificates", "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle", "http2_max_frame_size", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host",
    "proxy_ca_certificate", "proxy_excludes", "proxy_url", "randomize_addresses", "read_timeout", "timeout",
    "user_agent",
}  # fmt: skip
_OF_RETRIES: dict[str, Callable[[str], Any]] = {"max_retries": int, "retry_timeout": _duration}
_OF_BACKOFF: dict[str, Callable[[str], Any]] = {
    "backoff_config.init_backoff": _duration,
    "backoff_config.max_backoff": _duration,
    "backoff_config.base": float,
}


class _PutAttempt(NamedTuple):
    refusal: UpstreamError | None
    at_s: float


_tried: dict[tuple[str, _Options], _PutAttempt] = {}


def put_if_absent(location: str, storage: Mapping[str, str], path: str, content: bytes) -> bool:
    """Put a whole object; return False if the store reports that its name is taken.

    An OSError means that the object was not put, or that the store did not confirm it.
    """
    return _put(_opened(location, _hashable(storage)), path, content)


def puts_refused(location: str, storage: Mapping[str, str], masked: Callable[[object], str]) -> UpstreamError | None:
    """Return the reason why a store cannot put an object only if its name is free, or None.

    A process tries a store once, with three small requests. After a refusal it tries again, at most once a minute.
    `masked` removes secrets from the store's messages.
    """
    key = (location, _hashable(storage))
    known = before = _tried.get(key)
    now_s = time.monotonic()
    if known is None or (known.refusal is not None and now_s - known.at_s > _REFUSED_FOR_S):
        known = _tried[key] = _PutAttempt(_refusal(*key, masked), now_s)
    if before is None and known.refusal is not None:
        _LOG.warning("%s", known.refusal)
    return known.refusal


def _refusal(location: str, options: _Options, masked: Callable[[object], str]) -> UpstreamError | None:
    try:
        import obstore
    except ImportError:
        return EnvironmentMissingError(
            f"the package obstore is not installed, so a commit at {location} cannot detect another writer",
            hint=f"run `{pip_install('stores')}` where the driver runs; {_DO_WITHOUT}",
        )
    try:
        store = _opened(location, options, retries=_TRIAL_RETRIES)
        # One of two concurrent puts fails, which proves support.
        first = _put(store, _TRIAL, b"first")
        second = first and _put(store, _TRIAL, b"second")
        if first:
            with contextlib.suppress(Exception):  # if it stays, the next trial is refused too, which is harmless
                obstore.delete(store, _TRIAL)
    except OSError as error:
        return TableError(
            f"a put that fails if the object exists is not possible at {location}: {masked(error)}",
            expected="a store that supports this, such as S3, GCS, Azure, MinIO or R2, and credentials from the "
            "options, the environment or the machine's role",
            hint=f"correct the options that begin with `storage.`; {_DO_WITHOUT}",
        )
    if second:
        return TableError(
            f"the object store at {location} overwrites an object in spite of the condition If-None-Match",
            expected="a store that supports If-None-Match, such as S3, GCS, Azure, MinIO or R2: otherwise two writers "
            "may undo each other's commits",
            hint=f"keep the table in such a store; {_DO_WITHOUT}, and let one query alone write the table",
        )
    return None


def _put(store: ObjectStore, path: str, content: bytes) -> bool:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        obstore.put(store, path, content, mode="create", use_multipart=False)
    except AlreadyExistsError:
        return False
    except BaseError as error:
        raise OSError(_said(error)) from None
    return True


@functools.lru_cache(maxsize=64)
def _opened(location: str, options: _Options, retries: int | None = None) -> ObjectStore:
    """Return the connection to a store, which finds its credentials once and keeps them."""
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    own: dict[str, Any] = {}
    client: dict[str, Any] = {}
    retry: dict[str, Any] = {}
    try:
        for name, value in options:
            bare = _bare(name)
            if bare in _OF_CLIENT:
                client[bare] = value
            elif bare in _OF_RETRIES:
                retry[bare] = _OF_RETRIES[bare](value)
            elif bare in _OF_BACKOFF:
                retry.setdefault("backoff", {})[bare.partition(".")[2]] = _OF_BACKOFF[bare](value)
            elif _is_known(location, name, value):
                own[name] = value
        if retries is not None:
            retry["max_retries"] = min(retry.get("max_retries", retries), retries)
        settings: dict[str, Any] = {"config": own, "client_options": client, "retry_config": retry}
        return from_url(location, **settings)
    except (BaseError, ValueError) as error:
        raise OSError(_said(error)) from None


def _bare(name: str) -> str:
    for cloud in _CLOUDS:
        name = name.removeprefix(cloud)
    return name


def _is_known(location: str, name: str, value: str) -> bool:
    """Return whether obstore has an option; others are delta-rs' own."""
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError
    from obstore.store import from_url

    settings: dict[str, Any] = {"config": {name: value}}
    try:
        from_url(location, **settings)
    except UnknownConfigurationKeyError:
        return False
    except BaseError:  # it needs more options, or objects only to all of them together
        return True
    return True


def _hashable(storage: Mapping[str, str]) -> _Options:
    return tuple(sorted((name.lower(), value) for name, value in storage.items()))


def _said(error: Exception) -> str:
    """Return an error's message without the library's debugging details."""
    return str(error).partition("\n\nDebug source")[0]
