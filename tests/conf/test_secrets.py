"""Which values are secrets, and what is shown in their place."""

import pytest

from upstream.conf.errors import OptionError
from upstream.conf.locations import absolute_location, source_address
from upstream.conf.secrets import check_address, is_secret, masked, secrets_of

KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "option",
    [
        "kafka.sasl.password", "sasl_password", "kafka.ssl.keystore.key", "ssl_keystore_key", "kafka.ssl.key.pem",
        "kafka.sasl.jaas.config", "kafka.sasl.oauthbearer.client.secret", "schemaRegistry.basic.auth.user.info",
        "schema_registry.bearer.auth.token", "storage.azure_storage_account_key", "storage.AWS_SECRET_ACCESS_KEY",
        "storage.aws_access_key_id", "storage.azure_storage_sas_key", "storage.google_service_account_key",
    ],
)  # fmt: skip
def test_names_of_secrets(option):
    assert is_secret(option, "value")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("key", "vehicle_id"), ("key_format", "json"), ("event_time", "t"), ("topic", "tokens"),
        ("kafka.ssl.keystore.location", "/etc/keys"), ("kafka.ssl.key.location", "/etc/key.pem"),
        ("kafka.sasl.oauthbearer.token.endpoint.url", "https://h/token"),
        ("schema_registry.bearer.auth.credentials.source", "OAUTHBEARER"), ("schema_registry", "https://h:8081/a@b"),
        ("kafka.bootstrap.servers", "h1:9092,h2:9092"), ("storage.aws_region", "eu"),
        ("storage.azure_storage_account_name", "lake"), ("storage.endpoint", "http://127.0.0.1:9000"),
    ],
)  # fmt: skip
def test_what_is_no_secret(option, value):
    assert not is_secret(option, value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("s3://id:S/E+CRET@bucket/x", "s3://id:***@bucket/x"),
        ("https://u:1234@h:80/x", "https://u:***@h:80/x"),
        ("kafka://u:p@h1:9092,h2:9092/t", "kafka://u:***@h1:9092,h2:9092/t"),
        ("https://h/c?sv=1&sig=abc%3D&se=2", "https://h/c?sv=1&sig=***&se=2"),
        (f"key {KEY}", "key -----BEGIN PRIVATE KEY-----***"),
    ],
)
def test_addresses_with_secrets_are_refused_and_masked(address, shown):
    assert is_secret("any", address)
    assert masked(address, ()) == shown
    for take in (check_address, absolute_location, source_address):
        if "://" in address:
            with pytest.raises(OptionError) as refused:
                take(address)
            assert shown in str(refused.value)


@pytest.mark.parametrize(
    "address",
    ["s3://bucket/a:b@c.csv", "abfss://container@account.dfs.core.windows.net/x", "kafka://h1:9092,h2:9092/t@1",
     "http://h:8080/a@b", "/data/a@b.csv", "s3://bucket/day=?/part-[0-9].csv", "hdfs://u@h:8020/x"],
)  # fmt: skip
def test_addresses_without_secrets_are_taken(address):
    assert check_address(address) == address


def test_values_of_options_are_masked_longest_first_and_as_addresses_have_them():
    secrets = secrets_of(
        {"storage.key": "ab/cd", "storage.token": "ab/cdef", "storage.region": "eu-west", "storage.s": "a"}
    )
    assert masked("ab%2Fcdef, ab/cd in eu-west", secrets) == "***, *** in eu-west"
