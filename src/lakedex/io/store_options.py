"""Addresses of buckets, and the options with which they are reached.

Options have the names of the environment variables that SDKs read, in any case (``AWS_ACCESS_KEY_ID``,
``aws_region``), obstore's short ones (``endpoint``), or Hadoop's (``fs.s3a.access.key``), which are translated. What no
option says comes from the environment, as obstore reads it. Values are never shown: they may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakedex.errors import InvalidInputError, OptionError

__all__ = ["HADOOP_KEYS", "PROVIDERS", "StoreAddress", "parse_store_options", "plain_name", "store_address"]


PROVIDERS = {
    "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az",
}  # fmt: skip
"""Kind of store by the scheme of its URLs."""


HADOOP_KEYS = {
    "fs.s3a.access.key": "aws_access_key_id",
    "fs.s3a.secret.key": "aws_secret_access_key",
    "fs.s3a.session.token": "aws_session_token",
    "fs.s3a.endpoint": "aws_endpoint",
    "fs.s3a.endpoint.region": "aws_region",
    "fs.s3a.path.style.access": "aws_virtual_hosted_style_request",
    "fs.s3a.connection.ssl.enabled": "aws_allow_http",
}
"""Keys of Hadoop's S3A, and the options that say the same; the last two have the opposite value."""


_OPPOSITE = frozenset({"fs.s3a.path.style.access", "fs.s3a.connection.ssl.enabled"})


_ACCESS_KEYS = frozenset({"access_key_id", "aws_access_key_id"})


_TOKENS = frozenset({"session_token", "aws_session_token", "token", "aws_token"})


_ENDPOINTS = frozenset({"endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url"})


_ALLOW_HTTP = frozenset({"allow_http", "aws_allow_http"})


_OWNERS = re.compile("(aws|azure_storage|azure|google)_")
"""Begin names of options that mean the same without."""


_BOOLEANS = frozenset(
    {
        "allow_http", "allow_invalid_certificates", "disable_bulk_delete", "disable_tagging", "http1_only",
        "http2_only", "imdsv1_fallback", "randomize_addresses", "s3_express", "skip_signature", "unsigned_payload",
        "use_azure_cli", "use_emulator", "use_fabric_endpoint", "virtual_hosted_style_request",
    }
)  # fmt: skip


_TRUE = frozenset({"true", "1", "yes", "on", "y"})


_FALSE = frozenset({"false", "0", "no", "off", "n"})


_DURATIONS = frozenset(
    {
        "connect_timeout", "http2_keep_alive_interval", "http2_keep_alive_timeout", "pool_idle_timeout",
        "read_timeout", "timeout",
    }
)  # fmt: skip


_DURATION = re.compile(
    r"0|(\s*\d+(\.\d+)?\s*"
    r"(ms|msec|millis|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wk|wks|weeks?)(?![a-z]))+\s*"
)


_ENDPOINT = re.compile(r"https?://[^/\s]\S*")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A bucket and how it is reached; options are shown by name only.

    Attributes:
        provider: ``s3``, ``gs`` or ``az``.
        authority: what stands in a URL between scheme and path: ``lake``, ``lake@account.dfs.core.windows.net``.
        pairs: options, sorted by name.
    """

    provider: str
    authority: str
    pairs: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.pairs)
        return f"StoreAddress({self.url!r}{', options: ' + names if names else ''})"

    @property
    def url(self) -> str:
        """Scheme and bucket, for messages."""
        scheme = "abfss" if "@" in self.authority else self.provider
        return f"{scheme}://{self.authority}"

    @property
    def bucket(self) -> str:
        """Name of the bucket or container."""
        return self.authority.partition("@")[0]

    @property
    def options(self) -> dict[str, str]:
        """Options by name."""
        return dict(self.pairs)


def store_address(url: str, options: Mapping[str, Any]) -> StoreAddress:
    """The bucket of a URL.

    Args:
        url: ``s3://bucket/…``, ``gs://bucket/…``, ``az://container/…`` or
            ``abfss://container@account.dfs.core.windows.net/…``.
        options: as of :func:`parse_store_options`.

    Raises:
        InvalidInputError: the URL names no bucket, or has a user name before it.
        OptionError: an option of Hadoop's that has no translation.
    """
    scheme, _, rest = url.partition("://")
    scheme, authority = scheme.lower(), rest.partition("/")[0]
    provider = PROVIDERS[scheme]
    if ":" in authority or ("@" in authority and provider != "az"):
        # Not shown: a key may contain slashes, so any part of the URL may be of one.
        raise InvalidInputError(
            f"a {scheme}:// URL takes no user name, key or port beside the bucket: write {scheme}://bucket/path, and "
            "give keys and endpoint as storage_options"
        )
    if not authority:
        raise InvalidInputError(f"{url!r} names no bucket: write {scheme}://bucket/path")
    found = parse_store_options(options, authority)
    account = authority.partition("@")[2].partition(".")[0]
    if provider == "az" and account and not any(name.endswith("account_name") for name in found):
        found["azure_storage_account_name"] = account
    return StoreAddress(provider, authority, tuple(sorted(found.items())))


def parse_store_options(options: Mapping[str, Any], bucket: str) -> dict[str, str]:
    """Options as texts under the names that obstore knows.

    Args:
        options: names and values; None leaves an option out.
        bucket: whose options of S3A are taken: ``fs.s3a.bucket.<bucket>.endpoint`` counts before ``fs.s3a.endpoint``.

    Raises:
        OptionError: an option of Hadoop's that has no translation, or a truth value, duration or endpoint that is none.
    """
    found: dict[str, str] = {}
    own = f"fs.s3a.bucket.{bucket}."
    for name in options:
        if not isinstance(name, str):
            raise OptionError(
                f"names of storage options are texts, not {type(name).__name__}", option="storage_options"
            )
    for name, value in sorted(options.items(), key=lambda item: item[0].startswith(own)):
        if value is None or (name.startswith("fs.s3a.bucket.") and not name.startswith(own)):
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not name.startswith("fs."):
            found[name.lower()] = _checked(name, text)
            continue
        key = name.replace(own, "fs.s3a.")
        if key not in HADOOP_KEYS:
            known = ", ".join(HADOOP_KEYS)
            raise OptionError(
                f"storage option {name!r} has no meaning here; of Hadoop's there are {known}", option=name
            )
        found[HADOOP_KEYS[key]] = str(not _is_true(name, text)).lower() if key in _OPPOSITE else text
    return _completed(found)


def _completed(found: dict[str, str]) -> dict[str, str]:
    """Options that follow from others."""
    endpoint = _first(_ENDPOINTS, found)
    if endpoint is not None and found[endpoint] and "://" not in found[endpoint]:
        plain = _first(_ALLOW_HTTP, found)
        found[endpoint] = f"{'http' if plain and found[plain] == 'true' else 'https'}://{found[endpoint]}"
    if endpoint is not None and found[endpoint].startswith("http://") and _first(_ALLOW_HTTP, found) is None:
        found["aws_allow_http"] = "true"
    if _first(_ACCESS_KEYS, found) is not None and _first(_TOKENS, found) is None:
        found["aws_session_token"] = ""  # else obstore would take one of the environment's, which belongs to other keys
    return found


def _first(names: Iterable[str], found: Mapping[str, str]) -> str | None:
    return next((name for name in names if name in found), None)


def plain_name(name: str) -> str:
    """An option's name without its owner's: ``timeout`` of ``aws_timeout``."""
    return _OWNERS.sub("", name.lower(), count=1)


def _checked(name: str, text: str) -> str:
    """The text of an option, checked where its kind is known; a truth value becomes ``true`` or ``false``."""
    plain = plain_name(name)
    if plain in _BOOLEANS:
        return str(_is_true(name, text)).lower()
    if plain in _DURATIONS and not _DURATION.fullmatch(text):
        raise OptionError(f"storage option {name!r} is a duration with a unit, as 10s, 500ms or 5m", option=name)
    if plain in _ENDPOINTS and text and not _ENDPOINT.fullmatch(text):
        raise OptionError(f"storage option {name!r} begins with http:// or https://, and a host follows", option=name)
    return text


def _is_true(name: str, text: str) -> bool:
    value = text.strip().lower()
    if value not in _TRUE | _FALSE:
        raise OptionError(f"storage option {name!r} is true or false", option=name)
    return value in _TRUE
