"""TLS: what is offered, client certificates, and certificates that change while the node runs."""

from __future__ import annotations

import shutil
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.mqtt.packet import PUBACK, Connect, Packet, Publish
from tests.integration.serving import CERTIFICATES, RawClient, Serving, await_true, client_context, tls_arguments

ANY = "127.0.0.1:0"


def serving_with(path: Path, config: str) -> Serving:
    return Serving(path / "data", "--mqtts", ANY, "--wss", ANY, *tls_arguments(), config=config)


@pytest.fixture(scope="module")
def demanding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A node that lets in who has a certificate of the authority, under the certificate's name."""
    config = f"""
[tls]
ca = "{CERTIFICATES / "ca.pem"}"
require_client_certificate = true
[auth]
user_from_certificate = true
[[auth.rules]]
topics = ["devices/%u/#"]
"""
    with serving_with(tmp_path_factory.mktemp("tls"), config) as node:
        yield node


def test_a_client_certificate_names_the_user(demanding: Serving) -> None:
    with RawClient(demanding, "mqtts", context=client_context("client")) as client:
        assert client.connect("c", clean=True, session_s=0).code == 0
        client.send(Publish(b"devices/device-7/t", b"", 1, False, False, 1))
        assert client.expect_ack(PUBACK).code in (0x00, 0x10)
        client.send(Publish(b"devices/device-8/t", b"", 1, False, False, 2))
        assert client.expect_ack(PUBACK).code == 0x87


def test_a_client_without_a_certificate_is_refused(demanding: Serving) -> None:
    """In TLS 1.3 the client learns it after its own handshake, with the first bytes that it wants to read."""

    def connect() -> Packet | None:
        with RawClient(demanding, "mqtts", context=client_context()) as client:
            client.send(Connect(5, "c", True, 0))
            return client.receive()

    try:
        answer = connect()
    except OSError:  # ssl.SSLError is one
        answer = None
    assert answer is None


def test_an_old_protocol_is_refused(serving: Serving) -> None:
    context = client_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, OSError)):
        RawClient(serving, "mqtts", context=context)


def test_a_client_that_checks_the_name_and_the_authority_is_content(serving: Serving) -> None:
    with RawClient(serving, "mqtts", context=client_context()) as client:
        assert client.connect("checked", clean=True, session_s=0).code == 0


def test_large_messages_cross_tls_in_both_directions(serving: Serving) -> None:
    payload = bytes(range(256)) * 3000
    with RawClient(serving, "mqtts", context=client_context()) as client:
        client.connect("large", clean=True, session_s=0)
        client.subscribe(b"tls/large", 0)
        for _ in range(4):
            client.send(Publish(b"tls/large", payload))
        for _ in range(4):
            assert client.expect_publish().payload == payload


def test_certificates_are_read_again_at_sighup(tmp_path: Path) -> None:
    for name in ("pem", "key"):
        shutil.copy(CERTIFICATES / f"server.{name}", tmp_path / f"used.{name}")
    flags = ("--tls-certificate", str(tmp_path / "used.pem"), "--tls-key", str(tmp_path / "used.key"))
    with Serving(tmp_path / "data", "--mqtts", ANY, *flags) as node:

        def name_shown() -> str:
            with RawClient(node, "mqtts", context=client_context()) as client:
                assert isinstance(client.socket, ssl.SSLSocket)
                certificate = client.socket.getpeercert()
                assert certificate is not None
                return dict(pair[0] for pair in certificate["subject"])["commonName"]  # type: ignore[misc, index]

        with RawClient(node, "mqtts", context=client_context()) as before:
            before.connect("before", clean=True, session_s=0)
            assert name_shown() == "localhost"
            for name in ("pem", "key"):
                shutil.copy(CERTIFICATES / f"other.{name}", tmp_path / f"used.{name}")
            assert node.process is not None
            node.process.send_signal(signal.SIGHUP)
            await_true(lambda: name_shown() == "other.localhost")
            (tmp_path / "used.pem").write_text("no certificate")
            node.process.send_signal(signal.SIGHUP)
            await_true(lambda: "reload_failed" in node.log())
            assert name_shown() == "other.localhost", "a wrong file changes nothing"
            assert node.log().count(" reloaded") == 1, "what failed is not said to be read"
            before.send(Publish(b"still/there", b"", 1, False, False, 1))
            before.expect_ack(PUBACK)
