"""SIGHUP on a real node: what was revoked ends, connections included, and a bad file changes nothing."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from folkmoot.config.password import PasswordFile
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, Connack, Connect, Disconnect, Publish, Suback, Subscribe, Will
from tests.integration.authority import Authority
from tests.integration.handshake import SlowHandshake
from tests.integration.serving import CERTIFICATES, RawClient, Serving, await_true, client_context, tls_arguments

ANY = "127.0.0.1:0"


class Guarded(Serving):
    """A node with users, rules, certificates and a token, all of which can be changed."""

    def __init__(self, path: Path, *arguments: str) -> None:
        self.folder = path
        self.reloads = 0
        self.users = PasswordFile()
        for name in ("ann", "bob"):
            self.users.set(name, b"secret")
        self.users.write(path / "users")
        (path / "token").write_text("first-token-of-this-node\n")
        (path / "token").chmod(0o600)
        shutil.copy(CERTIFICATES / "ca.pem", path / "ca.pem")
        super().__init__(path / "data", "--mqtt", ANY, "--mqtts", ANY, "--admin", ANY, *tls_arguments(), *arguments)
        self.write()

    def write(self, rules: str = "", **auth: object) -> None:
        settings = "".join(f"{name} = {str(value).lower()}\n" for name, value in auth.items())
        self.config.write_text(
            f'[tls]\nca = "{self.folder}/ca.pem"\n[admin]\ntoken_file = "{self.folder}/token"\n'
            f'[auth]\npassword_file = "{self.folder}/users"\nuser_from_certificate = true\n{settings}{rules}'
        )

    def reload(self, event: str = " reloaded") -> None:
        """Send SIGHUP and wait until the log has the event once more."""
        before = self.log().count(event)
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)
        await_true(lambda: self.log().count(event) > before)

    def enter(self, name: str, password: bytes = b"secret", client_id: str = "", will: Will | None = None) -> RawClient:
        client = RawClient(self)
        client.send(Connect(5, client_id or f"of-{name}", True, 0, name, password, will, None))
        answer = client.receive()
        assert isinstance(answer, Connack), answer
        assert answer.code == 0, answer
        return client


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def why(client: RawClient) -> str:
    answer = client.receive()
    assert isinstance(answer, Disconnect), answer
    assert answer.code == 0x87
    assert answer.properties is not None
    return answer.properties.reason or ""


def alive(client: RawClient) -> None:
    client.send(Publish(b"alive", b"", 1, False, False, 9))
    client.expect_ack(PUBACK)


def refused(node: Serving, name: str, password: bytes, version: int = 5) -> int:
    with RawClient(node, version=version) as client:
        client.send(Connect(version, "refused", True, 0, name, password, None, None))
        answer = client.receive()
        assert isinstance(answer, Connack), answer
        return answer.code


def test_users_and_passwords(guarded: Guarded) -> None:
    with guarded, guarded.enter("ann", will=Will(b"w", b"gone", 1, False)) as ann, guarded.enter("bob") as bob:
        bob.subscribe(b"w", 1)
        guarded.reload()
        alive(ann)
        guarded.users.remove("ann")
        guarded.users.write(guarded.folder / "users")
        guarded.reload()
        assert why(ann) == "the user was removed"
        assert refused(guarded, "ann", b"secret") == 0x86
        assert refused(guarded, "ann", b"secret", 4) == 4
        alive(bob)
        assert bob.receive(0.5) is None, "the will of a removed user"
        guarded.users.set("bob", b"another")
        guarded.users.write(guarded.folder / "users")
        guarded.reload()
        assert why(bob) == "the password was changed"
        guarded.enter("bob", b"another").socket.close()


def test_rules(guarded: Guarded) -> None:
    with guarded, guarded.enter("ann") as ann, guarded.enter("bob") as bob:
        ann.subscribe(b"secret/x", 1)
        bob.subscribe(b"open/x", 1)
        guarded.write('default = "allow"\n[[auth.rules]]\nverdict = "deny"\ntopics = ["secret/#"]\n')
        guarded.reload()
        assert "secret/x" in why(ann)
        alive(bob)
        with guarded.enter("ann") as again:
            again.send(Subscribe(1, [(b"secret/x", 1)]))
            answer = again.receive()
            assert isinstance(answer, Suback)
            assert answer.codes == [0x87]


def test_a_bad_file_changes_nothing_and_is_named(guarded: Guarded) -> None:
    with guarded, guarded.enter("ann") as ann:
        good = guarded.config.read_text()
        guarded.users.remove("bob")
        guarded.users.write(guarded.folder / "users")
        for fault in (
            "[auth]\nrulse = 1\n",
            good + '[[auth.rules]]\ntopics = ["a/#/b"]\n',
            good.replace("token", "no"),
            good.replace("/users", "/a\\u0000b"),
            f"nested = {'[' * 5000}",
        ):
            guarded.config.write_text(fault)
            guarded.reload("reload_failed")
            alive(ann)
        guarded.config.write_text(good)
        guarded.enter("bob").socket.close()
        (guarded.folder / "users").write_text("ann:nonsense\n")
        guarded.reload("reload_failed")
        assert "line 1" in guarded.log()
        alive(ann)
        assert " reloaded" not in guarded.log()


def test_the_token(guarded: Guarded) -> None:
    def status(token: str, path: str = "/metrics") -> int:
        url = f"http://127.0.0.1:{guarded.port('admin')}{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    with guarded:
        assert status("first-token-of-this-node") == 200
        assert status("a-token-for-metrics-only") == 403
        (guarded.folder / "token").write_text("second-token-of-this-node\n")
        lesser = guarded.folder / "lesser"
        lesser.write_text("a-token-for-metrics-only\n")
        lesser.chmod(0o600)
        config = guarded.config.read_text()
        guarded.config.write_text(config.replace("[admin]\n", f'[admin]\nmetrics_token_file = "{lesser}"\n'))
        guarded.reload()
        assert status("first-token-of-this-node") == 403
        assert status("second-token-of-this-node") == 200
        assert status("a-token-for-metrics-only") == 200
        for path in ("status", "streams", "tables", "transactions", "partitions"):
            assert status("a-token-for-metrics-only", f"/api/v1/{path}") == 403
        guarded.config.write_text(config)
        guarded.reload()
        assert status("a-token-for-metrics-only") == 403


def test_a_reader_that_waits_with_the_former_token_gets_nothing_more(tmp_path: Path) -> None:
    """Its request was allowed when it came, and is answered half a minute later."""
    guarded = Guarded(tmp_path, "--stream", "s=s/#")
    with guarded, ThreadPoolExecutor(8) as pool, guarded.enter("ann") as ann:
        url = f"http://127.0.0.1:{guarded.port('admin')}/api/v1/streams/s/partitions/%d/records?from=0&wait_ms=30000"
        headers = {"Authorization": "Bearer first-token-of-this-node"}
        answers = [
            pool.submit(answer_of, urllib.request.Request(url % partition, headers=headers)) for partition in range(8)
        ]
        time.sleep(1.0)  # they wait at the end of the stream
        assert not any(answer.done() for answer in answers)
        (guarded.folder / "token").write_text("second-token-of-this-node\n")
        guarded.reload()
        ann.send(Publish(b"s/x", b"secret", 1, False, False, 9))
        ann.expect_ack(PUBACK)
        for answer in answers:
            status, body = answer.result(20)
            assert b"secret" not in body, status


def answer_of(request: urllib.request.Request) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_an_authority_that_was_removed(guarded: Guarded, tmp_path: Path) -> None:
    """Its clients are disconnected, and neither a handshake nor a resumed session lets them in again."""
    context = client_context("client")
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # whose sessions carry the certificate, if they are resumed
    with guarded, guarded.enter("ann") as ann:
        with RawClient(guarded, "mqtts", context=context) as device:
            device.connect("device", clean=True, session_s=0)
            assert isinstance(device.socket, ssl.SSLSocket)
            session = device.socket.session
            guarded.reload()
            alive(device)
            make_authority(tmp_path / "ca.pem")
            guarded.reload()
            assert "not trusted" in why(device)
        alive(ann)
        for former in (None, session):
            with pytest.raises((OSError, AssertionError)):
                enter_again(guarded, context, former)


def enter_again(node: Serving, context: ssl.SSLContext, session: ssl.SSLSession | None) -> None:
    client = RawClient(node, "mqtt")
    client.socket.close()
    raw = socket.create_connection(node.places["mqtts"], timeout=20)
    client.socket = context.wrap_socket(raw, server_hostname="localhost", session=session)
    with client:
        client.connect("device", clean=True, session_s=0)


def make_authority(path: Path) -> None:
    """Put the certificate of another authority into a file."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=other"]
    subprocess.run(
        [*command, "-keyout", str(path.with_suffix(".other")), "-out", str(path)], check=True, capture_output=True
    )


def test_a_changed_setting_that_needs_a_restart_is_named(guarded: Guarded) -> None:
    with guarded:
        guarded.config.write_text(guarded.config.read_text() + "[limits]\nreceive_max = 10\n")
        guarded.reload("restart_needed")
        assert "limits.receive_max" in guarded.log()


def test_wrong_passwords_are_limited_by_their_address(guarded: Guarded) -> None:
    """And neither the client that was let in nor one that is new at another address waits for them."""
    with guarded:
        guarded.enter("ann").socket.close()
        codes = [refused(guarded, "bob", b"wrong %d" % number) for number in range(40)]
        assert set(codes) == {0x86, 0x9F}
        assert 20 <= codes.count(0x86) < 40, "20 at once, and one more after a second or more"
        assert 3 in {refused(guarded, "bob", b"x%d" % number, 4) for number in range(8)}
        guarded.enter("ann").socket.close()
        with RawClient(guarded) as other:
            other.socket.close()
            other.socket = socket.create_connection(guarded.places["mqtt"], 20, source_address=("127.0.0.2", 0))
            other.send(Connect(5, "other", True, 0, "bob", b"secret", None, None))
            answer = other.receive()
            assert isinstance(answer, Connack)
            assert answer.code == 0


def configured(path: Path, where: str, secured: bool) -> str:
    """Return a configuration whose listeners are at `where`; secured: with users and a token."""
    token = f'token_file = "{path}/token"\n' if secured else ""
    auth = f'[auth]\npassword_file = "{path}/users"\n' if secured else ""
    listeners = f'[[listeners]]\naddress = "{where}:0"\n'
    return f'{listeners}[admin]\naddress = "{where}:0"\n{token}{auth}'


def test_a_reload_cannot_open_what_is_bound_to_the_network(tmp_path: Path) -> None:
    """An address changes only at a restart: until then, what the new one would allow is not safe at the old one."""
    users = PasswordFile()
    users.set("ann", b"secret")
    users.write(tmp_path / "users")
    (tmp_path / "token").write_text("first-token-of-this-node\n")
    (tmp_path / "token").chmod(0o600)
    with Serving(tmp_path / "data", config=configured(tmp_path, "0.0.0.0", True)) as node:
        node.config.write_text(configured(tmp_path, "127.0.0.1", False))
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        await_true(lambda: "reload_failed" in node.log() or " reloaded" in node.log())
        with RawClient(node) as client:
            client.send(Connect(5, "stranger", True, 0, None, None, None, None))
            answer = client.receive()
            assert isinstance(answer, Connack)
            assert answer.code == 0x87, "the listener is still open to the network"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://127.0.0.1:{node.port('admin')}/metrics", timeout=20)
        assert "reload_failed" in node.log()
        assert "listeners[0] (mqtt 0.0.0.0:" in node.log()
        assert "admin.address: on 0.0.0.0:" in node.log()
        assert "restart" in node.log()


def upgrade(node: Serving, origin: str, host: str) -> int:
    """Ask for a WebSocket as a page of this origin would; the status of the answer."""
    with RawClient(node, "ws") as client:
        client.send(
            f"GET /mqtt HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
        )
        return int(client.socket.recv(4096).split()[1])


def test_the_pages_that_may_connect_are_those_of_the_rules_of_now(tmp_path: Path) -> None:
    users = PasswordFile()
    users.set("ann", b"secret")
    users.write(tmp_path / "users")
    ws = f'[[listeners]]\nprotocol = "ws"\naddress = "{ANY}"\n'
    with Serving(
        tmp_path / "data", config=f'{ws}origins = ["https://a.example"]\n[auth]\npassword_file = "{tmp_path}/users"\n'
    ) as node:
        assert upgrade(node, "https://a.example", "b.example") == 101
        assert upgrade(node, "http://b.example", "b.example") == 101, "clients must authenticate"
        node.config.write_text(ws)
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        await_true(lambda: " reloaded" in node.log())
        assert upgrade(node, "https://a.example", "b.example") == 403, "not listed any more"
        assert upgrade(node, "http://b.example", "b.example") == 403, "nobody need authenticate any more"
        assert upgrade(node, "http://localhost", "localhost") == 101


def test_a_certificate_that_was_revoked(guarded: Guarded, tmp_path: Path) -> None:
    """Its client is disconnected by a reload with the new list, and gets in no more; nobody does by an old list."""
    authority = Authority(tmp_path / "pki", "devices")
    contexts = {}
    for name in ("meter", "thief"):
        certificate, key = authority.issue(name)
        contexts[name] = client_context()
        contexts[name].load_cert_chain(certificate, key)
    shutil.copy(authority.folder / "ca.pem", tmp_path / "ca.pem")
    crl = authority.folder / "crl.pem"
    with guarded:

        def enter(name: str) -> RawClient:
            client = RawClient(guarded, "mqtts", context=contexts[name])
            client.connect(name, clean=True, session_s=0)
            return client

        def is_refused(name: str) -> bool:
            with contextlib.suppress(OSError), RawClient(guarded, "mqtts", context=contexts[name]) as client:
                client.send(Connect(5, name, True, 0, None, None, None, None))
                return client.receive() is None
            return True

        with enter("meter") as meter, enter("thief") as thief:
            guarded.config.write_text(guarded.config.read_text().replace("[tls]", f'[tls]\ncrl = "{crl}"'))
            guarded.reload()
            alive(thief)
            authority.revoke("thief")
            guarded.reload()
            assert why(thief) == "the certificate was revoked"
            alive(meter)
            assert is_refused("thief")
            enter("meter").socket.close()
        authority.write_list("-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200102000000Z")
        guarded.reload()
        assert is_refused("meter"), "the list has expired"
        assert "revoked" in guarded.log()
        crl.write_text("nothing")
        guarded.reload("reload_failed")
        assert "revocation lists" in guarded.log()


def test_connections_that_are_not_complete_when_a_certificate_is_revoked(guarded: Guarded, tmp_path: Path) -> None:
    """Neither a handshake that ends after the reload nor a connection that has sent no CONNECT yet gets in."""
    authority = Authority(tmp_path / "pki", "devices")
    context = client_context()
    context.load_cert_chain(*authority.issue("thief"))
    shutil.copy(authority.folder / "ca.pem", tmp_path / "ca.pem")
    connect = encode(Connect(5, "thief", True, 0, None, None, None, None), 5)
    guarded.config.write_text(
        guarded.config.read_text().replace("[tls]", f'[tls]\ncrl = "{authority.folder / "crl.pem"}"')
    )
    with guarded:
        with SlowHandshake(guarded.port("mqtts"), context) as before:
            assert before.finish(connect) > 0
        with (
            SlowHandshake(guarded.port("mqtts"), context) as unfinished,
            RawClient(guarded, "mqtts", context=context) as silent,
        ):
            authority.revoke("thief")
            guarded.reload()
            assert silent.receive() is None, "closed"
            assert unfinished.finish(connect) == 0
        await_true(lambda: guarded.log().count("the certificate was revoked") == 2)


def test_an_order_that_began_with_a_token_which_was_replaced(guarded: Guarded) -> None:
    """Its body comes slowly, and ends after the reload: it is refused as if it came now, and changes nothing."""
    body = encode(Publish(b"t", b"x", 1, False, False, 1), 5)
    head = (
        f"PUT /api/v1/transactions/app/0/p/0 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        "authorization: Bearer first-token-of-this-node\r\n\r\n"
    )
    with guarded, socket.create_connection(guarded.places["admin"], 20) as slow:
        slow.sendall(head.encode() + body[:1])
        time.sleep(0.3)  # it is admitted
        (guarded.folder / "token").write_text("other-token-of-this-node\n")
        guarded.reload()
        slow.sendall(body[1:])
        answer = slow.recv(4096)
        assert answer.startswith(b"HTTP/1.1 403 "), answer
        request = urllib.request.Request(f"http://127.0.0.1:{guarded.port('admin')}/api/v1/transactions")
        request.add_header("authorization", "Bearer other-token-of-this-node")
        with urllib.request.urlopen(request, timeout=20) as listed:
            assert b'"app":"app"' not in listed.read().replace(b" ", b"")
