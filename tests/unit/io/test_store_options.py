"""Storage options that cannot be used: the error names the option, and shows no value."""

from __future__ import annotations

from typing import Any

import pytest

from lakedex import Table
from lakedex.errors import OptionError, StorageError
from lakedex.io.locations import open_storage
from lakedex.io.store_options import parse_store_options

DURATION, TRUTH, ENDPOINT = "is a duration with a unit, as 10s", "is true or false", "begins with http:// or https://"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "options", "named", "says"),
    [
        ("s3://lake/t", {"timeout": 10}, "timeout", DURATION),
        ("s3://lake/t", {"timeout": "10 parsecs"}, "timeout", DURATION),
        ("gs://lake/t", {"Connect_Timeout": ""}, "Connect_Timeout", DURATION),
        ("s3://lake/t", {"aws_virtual_hosted_style_request": "maybe"}, "aws_virtual_hosted_style_request", TRUTH),
        ("gs://lake/t", {"google_skip_signature": "maybe"}, "google_skip_signature", TRUTH),
        ("az://lake/t", {"azure_storage_use_emulator": "maybe"}, "azure_storage_use_emulator", TRUTH),
        ("s3://lake/t", {"fs.s3a.path.style.access": "maybe"}, "fs.s3a.path.style.access", TRUTH),
        ("s3://lake/t", {"aws_endpoint_url": "minio:9000"}, "aws_endpoint_url", ENDPOINT),
        ("s3://lake/t", {"endpoint": "http://"}, "endpoint", ENDPOINT),
        ("az://lake/t", {"azure_storage_endpoint": "maybe"}, "azure_storage_endpoint", ENDPOINT),
        ("s3://lake/t", {"proxy_url": "::::"}, "proxy_url", "is no URL of a proxy"),
        (
            "s3://lake/t",
            {"aws_access_key_id": "maybe"},
            "aws_secret_access_key",
            "is missing; a key id needs its secret",
        ),
        (
            "s3://lake/t",
            {"aws_secret_access_key": "maybe"},
            "aws_access_key_id",
            "is missing; a secret needs its key id",
        ),
        ("az://lake/t", {}, "azure_storage_account_name", "is missing; give it, or write abfss://"),
        (
            "s3://lake/t",
            {"aws_conditional_put": "maybe", "user_agent": "x"},
            "storage_options",
            "a value of the storage options aws_conditional_put, user_agent or of the environment cannot be used",
        ),
        ("s3://lake/t", {"nonsense": "maybe"}, "nonsense", "is unknown for s3://lake"),
        ("s3://lake/t", {7: "maybe"}, "storage_options", "names of storage options are texts, not int"),
    ],
)
def test_the_option_is_named(url: str, options: dict[Any, Any], named: str, says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        Table.open(url, storage_options=options)
    assert caught.value.__dict__["option"] == named
    assert named in str(caught.value).replace("storage options", "storage_options")
    text = f"{caught.value} {caught.value.__dict__}"
    assert "maybe" not in text and "aws_allow_http" not in text


def test_an_endpoint_of_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "maybe")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio:9000")
    with pytest.raises(OptionError, match="AWS_ENDPOINT_URL, begins with http:// or https://") as caught:
        Table.open("s3://lake/t")
    assert "minio" not in str(caught.value)


def test_an_endpoint_of_the_environment_may_be_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "maybe")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for allowed, code in ((None, ""), ("false", "HttpNotAllowed")):
        if allowed:
            monkeypatch.setenv("AWS_ALLOW_HTTP", allowed)
        with pytest.raises(StorageError) as caught:
            Table.open("s3://lake/t")
        assert caught.value.code == code


def test_a_changed_environment_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an error that asks for it, in the same notebook."""
    options = {"aws_skip_signature": True}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    before, again = (open_storage("s3://lake/t", options).storage for _ in range(2))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2")
    after = open_storage("s3://lake/t", options).storage
    assert before == again
    assert after != before


@pytest.mark.parametrize("text", ["0", "500ms", "1.5 s", "1h 5m", "2 minutes", "3days1sec", "1 hr", "2wks", "5 millis"])
def test_durations_that_the_client_takes(text: str) -> None:
    assert open_storage("s3://lake/t", {"timeout": text, "aws_read_timeout": text}).base_path == "s3://lake/t"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"aws_skip_signature": True}, {"aws_skip_signature": "true"}),
        ({"AWS_ALLOW_HTTP": " Yes"}, {"aws_allow_http": "true"}),
        ({"allow_http": "0"}, {"allow_http": "false"}),
        ({"fs.s3a.path.style.access": "FALSE"}, {"aws_virtual_hosted_style_request": "true"}),
        (
            {"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": False},
            {"aws_endpoint": "http://minio:9000", "aws_allow_http": "true"},
        ),
        ({"fs.s3a.endpoint": "s3.example.com"}, {"aws_endpoint": "https://s3.example.com"}),
        ({"aws_endpoint": "http://minio:9000"}, {"aws_endpoint": "http://minio:9000", "aws_allow_http": "true"}),
    ],
)
def test_what_options_become(given: dict[str, Any], found: dict[str, str]) -> None:
    assert parse_store_options(given, "lake") == found
