"""The rest.toml: what is refused, and how that is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rtsched.core.config import read_settings
from rtsched.errors import ConfigError
from rtsched.rest.settings import RestSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_the_defaults_are_for_one_host(tmp_path: Path) -> None:
    """An empty file listens on this host alone."""
    file = tmp_path / "rest.toml"
    file.write_text("")
    assert read_settings(file, RestSettings) == RestSettings()
    assert RestSettings().address == "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('address = "0.0.0.0"', "which needs TLS"),
        ('address = "::"', "which needs TLS"),
        ('address = "head"', "'head' is not an IP address"),
        ('certificate = "/c.pem"', "key: is needed too"),
        ('key = "/k.pem"', "certificate: is needed too"),
        ('port = 0\nsocket = ""', "nobody could connect"),
        ("prot = 1", "prot: unknown setting; did you mean 'port'?"),
        ("rate = 0", "rate: expected `float` > 0"),
        ("max_body = 10", "max_body"),
        ('log_level = "loud"', "log_level: invalid value 'loud'; choose one of"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    """Each is one sentence with the file and the setting."""
    file = tmp_path / "rest.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_settings(file, RestSettings)
    assert str(file) in str(refused.value)
    assert says in str(refused.value)


def test_loopback_needs_no_tls(tmp_path: Path) -> None:
    """Nor does TCP with a certificate, whatever the address."""
    file = tmp_path / "rest.toml"
    for text in (
        'address = "::1"',
        'address = "127.1.2.3"',
        'address = "0.0.0.0"\ncertificate = "/c"\nkey = "/k"',
        'address = "0.0.0.0"\nport = 0',
    ):
        file.write_text(text)
        read_settings(file, RestSettings)
