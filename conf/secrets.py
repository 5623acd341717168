"""Secrets: which values of options and which addresses have one, and how they are refused and masked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from .errors import OptionError

MASK = "***"
STORAGE = "storage."
# Part of a name. Values of other names are secrets only if they say so themselves.
_NAMES = re.compile(
    r"password|passphrase|secret|token|credential|jaas|user\.?info|oauth|signature|.key$|\bkey\.pem|sasl$"
)
# The end of a name whose value is a place or a kind, and no secret.
_PLACES = re.compile(r"\.(url|uri|source|location|path|file|type|class|mechanism|method|algorithm|ms)$")
# Any other option of an object store may be a secret: the stores' clients have many, under several names.
_OF_STORES = re.compile(
    r"region|endpoint|timeout|retries|interval|allow_|virtual_hosted|conditional_put|copy_if|unsigned|skip_|disable_"
    r"|account_name|_path$"
)
# The password of an address, which is no port; a signature in an address; a key.
_PASSWORD = re.compile(r"(://[^/?#@\s]*:)(?!\d+(?:[/,?#]|$))[^@\s]+(?=@)")
_SIGNATURE = re.compile(
    r"(://\S*[?&][\w.-]*(?:sig|signature|token|password|secret|credential)[\w.-]*=)[^&#\s]+", re.IGNORECASE
)
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*", re.DOTALL)
# A shorter value is in too many words to be masked.
_LEAST = 4


def has_secret(text: str) -> bool:
    """Return whether a text is an address with a password or a signature, or a private key."""
    return any(each.search(text) for each in (_PASSWORD, _SIGNATURE, _PRIVATE_KEY))


def is_secret(option: str, value: str) -> bool:
    """Return whether an option's value is a secret, by the name, in any spelling, or by the value."""
    name = option.strip().lower()
    if has_secret(value):
        return True
    if name.startswith(STORAGE):
        return not _OF_STORES.search(name)
    name = name.replace("_", ".")
    return bool(_NAMES.search(name)) and not _PLACES.search(name)


def without_secrets(text: str) -> str:
    """Return a text with masks in place of the passwords, signatures and keys that its form shows."""
    for each in (_PASSWORD, _SIGNATURE, _PRIVATE_KEY):
        text = each.sub(rf"\1{MASK}", text)
    return text


def secrets_of(options: Mapping[str, str]) -> list[str]:
    """Return the secret values of options, as such and in addresses: the longest first, as they may contain others."""
    values = [value for name, value in options.items() if len(value) >= _LEAST and is_secret(name, value)]
    return sorted({form for value in values for form in (value, quote(value, safe=""))}, key=len, reverse=True)


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text with masks in place of some secrets, longest first, and of those that its form shows."""
    for each in secrets:
        text = text.replace(each, MASK)
    return without_secrets(text)


def check_address(address: str) -> str:
    """Return an address; raise OptionError if it has a password or a signature, which files and logs would keep."""
    if has_secret(address):
        raise OptionError(
            f"the address {without_secrets(address)!r} has a secret, which files and logs would keep",
            expected="an address without a user and a password",
            hint="give the credentials in the environment, such as AWS_SECRET_ACCESS_KEY, or as options, such as "
            "storage.aws_secret_access_key",
        )
    return address
