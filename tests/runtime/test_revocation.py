"""Revocation lists: what is read of them, and what they refuse."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from folkmoot.config.settings import TlsSettings
from folkmoot.runtime.revocation import Revocations, parts_of, read_certificate
from folkmoot.runtime.tls import Certificates, TlsError
from tests.integration.authority import Authority
from tests.integration.serving import CERTIFICATES


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("pki") / "ca", "devices")
    for name in ("ann", "bob", "eve"):
        made.issue(name)
    return made


def test_what_was_revoked_is_refused_and_nothing_else(authority: Authority) -> None:
    paths = {name: authority.folder / f"{name}.pem" for name in ("ann", "bob", "eve", "ca")}
    chains = {name: [der(paths[name]), der(paths["ca"])] for name in ("ann", "bob", "eve")}
    empty = Revocations.read(authority.folder / "crl.pem")
    assert [empty.refuses(chain) for chain in chains.values()] == ["", "", ""]
    authority.revoke("eve")
    authority.revoke("bob")
    lists = Revocations.read(authority.folder / "crl.pem")
    assert [lists.refuses(chain) for chain in chains.values()] == ["", *["the certificate was revoked"] * 2]
    assert (lists.adds_to(empty), empty.adds_to(lists), lists.adds_to(lists)) == (True, False, False)
    assert "no revocation list" in lists.refuses([der(CERTIFICATES / "client.pem")])
    assert lists.adds_to(Revocations({b"another": frozenset()})), "one that is missing now"
    assert "cannot be compared" in lists.refuses([b"0"])


def test_the_serial_is_that_of_openssl(authority: Authority) -> None:
    for name in ("ann", "bob", "eve"):
        index = next(line for line in (authority.folder / "index.txt").read_text().splitlines() if f"={name}" in line)
        assert read_certificate(der(authority.folder / f"{name}.pem"))[1] == int(index.split("\t")[3], 16)


def test_every_cut_of_a_list_is_an_error(authority: Authority, tmp_path: Path) -> None:
    data = der(authority.folder / "ca.pem")
    assert read_certificate(data)
    for size in range(len(data)):
        with pytest.raises(ValueError, match="damaged"):
            read_certificate(data[:size])
    for wrong in (b"\x30\x80\0\0", b"\x30\x85\0\0\0\0\0", b"\x30"):
        with pytest.raises(ValueError, match="damaged"):
            parts_of(wrong)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "none in it"),
        ("-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n", "damaged"),
        ("-----BEGIN X509 CRL-----\nM!\n-----END X509 CRL-----\n", "revocation lists"),
        ("+ca", "would be trusted"),
    ],
)
def test_a_file_that_is_no_list_is_refused(authority: Authority, tmp_path: Path, content: str, why: str) -> None:
    """Above all one with a certificate, which would be trusted to sign others."""
    path = tmp_path / "crl.pem"
    more = (authority.folder / "crl.pem").read_text() + (CERTIFICATES / "nodes.pem").read_text()
    path.write_text(more if content == "+ca" else content)
    settings = TlsSettings(
        certificate=CERTIFICATES / "server.pem",
        key=CERTIFICATES / "server.key",
        ca=authority.folder / "ca.pem",
        crl=path,
    )
    with pytest.raises(TlsError, match=why):
        Certificates(settings)
