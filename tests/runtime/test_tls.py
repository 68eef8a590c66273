"""The user name that a certificate gives."""

from __future__ import annotations

import pytest

from folkmoot.runtime.tls import common_name


def subject(*names: str) -> dict[str, object]:
    return {"subject": ((("organizationName", "x"),), *[(("commonName", name),) for name in names])}


def test_the_common_name_is_the_user() -> None:
    assert common_name(subject("meter 7")) == "meter 7"


@pytest.mark.parametrize("names", [(), ("",), ("ann", "ops"), ("ann\0ops",), ("\0ann",), ("\ud800",)])
def test_what_is_no_user_name_names_nobody(names: tuple[str, ...]) -> None:
    """An empty one would count as the name of anonymous clients; of two, an authority may have looked at the other."""
    assert common_name(subject(*names)) is None


def test_no_certificate_names_nobody() -> None:
    assert common_name(None) is None
    assert common_name({}) is None
