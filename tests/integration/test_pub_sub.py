"""`folkmoot pub` and `folkmoot sub` as a user runs them: against a node, against each other, against Mosquitto's."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from paho.mqtt.client import MQTTMessage

from folkmoot.cli import main
from folkmoot.cli.connection import PASSWORD_VARIABLE, Connection, ConnectionOptions
from folkmoot.cli.link import Link
from folkmoot.config import PasswordFile
from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.framer import Framer
from folkmoot.mqtt.packet import PUBCOMP, PUBREC, PUBREL, Ack, Connack, Packet, Publish
from tests.integration.serving import CERTIFICATES, RawClient, Serving, await_true

ANY = "127.0.0.1:0"
WAIT_S = 20.0
CA = str(CERTIFICATES / "ca.pem")


class Child:
    """A command that runs beside the test: `ready` when stderr says so, then `finish` for its status and output."""

    def __init__(self, command: Sequence[str], ready: str) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.errors: list[str] = []
        self.said = threading.Condition()
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()
        self.await_said(ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        self.thread.join(WAIT_S)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self.said:
                self.errors.append(line.decode())
                self.said.notify_all()

    def await_said(self, text: str, times: int = 1) -> None:
        """Wait until stderr has had `text` so many times."""
        with self.said:
            found = self.said.wait_for(lambda: "".join(self.errors).count(text) >= times, WAIT_S)
            assert found, "".join(self.errors)

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes of its output."""
        assert self.process.stdout is not None
        data = b""
        while len(data) < size and (more := self.process.stdout.read(size - len(data))):
            data += more
        return data

    def finish(self) -> tuple[int, bytes]:
        assert self.process.stdout is not None
        output = self.process.stdout.read()
        status = self.process.wait(WAIT_S)
        # Only now `errors` is complete.
        self.thread.join(WAIT_S)
        return status, output


def place(node: Serving, transport: str = "mqtt") -> list[str]:
    """The options that name a listener."""
    # The certificate of the tests is for this name.
    host = "localhost" if transport in ("mqtts", "wss") else "127.0.0.1"
    options = ["--url", f"{transport}://{host}:{node.port(transport)}"]
    return [*options, "--cafile", CA] if transport in ("mqtts", "wss") else options


def subscriber(node: Serving, *options: str, transport: str = "mqtt") -> Child:
    """A `folkmoot sub` that the broker has subscribed."""
    command = [sys.executable, "-m", "folkmoot", "sub", *place(node, transport), "-d", "-W", str(WAIT_S), *options]
    return Child(command, "Received SUBACK")


def publish(node: Serving, *options: str, transport: str = "mqtt") -> int:
    return main(["pub", *place(node, transport), "-W", str(WAIT_S), *options])


def take(node: Serving, *options: str) -> int:
    """`folkmoot sub` in this process, for what is there already."""
    return main(["sub", *place(node), "-W", str(WAIT_S), *options])


@pytest.mark.parametrize("transport", ["mqtt", "mqtts", "ws", "wss"])
def test_every_transport_and_all_properties(serving: Serving, transport: str) -> None:
    words = (
        "-D publish content-type text/plain -D publish response-topic to/me -D publish correlation-data id "
        "-D publish payload-format-indicator 1 -D publish message-expiry-interval 60 "
        "-D publish user-property k v -D publish user-property k w"
    )
    options = ["-t", f"t/{transport}/#", "-q", "2", "-C", "1", "--json", "-D", "subscribe", "subscription-identifier"]
    with subscriber(serving, *options, "7", transport=transport) as sub:
        arguments = ["-t", f"t/{transport}/é", "-m", "grüße", "-q", "2", *words.split()]
        assert publish(serving, *arguments, transport=transport) == 0
        status, output = sub.finish()
    assert status == 0
    found = json.loads(output)
    assert {key: found[key] for key in found if not key.startswith("time")} == {
        "topic": f"t/{transport}/é",
        "qos": 2,
        "retain": False,
        "dup": False,
        "payload": "grüße",
        "payload_format_indicator": 1,
        "message_expiry_interval": 60,
        "content_type": "text/plain",
        "response_topic": "to/me",
        "correlation_data_base64": "aWQ=",
        "subscription_identifiers": [7],
        "user_properties": [["k", "v"], ["k", "w"]],
    }


@pytest.mark.parametrize("version", ["311", "31"])
def test_older_versions(serving: Serving, version: str) -> None:
    with subscriber(serving, "-t", f"old/{version}", "-V", version, "-q", "1", "-C", "2", "-v") as sub:
        assert publish(serving, "-t", f"old/{version}", "-V", version, "-m", "one", "-q", "1") == 0
        assert publish(serving, "-t", f"old/{version}", "-V", version, "-n", "-q", "2") == 0
        assert sub.finish() == (0, f"old/{version} one\nold/{version} (null)\n".encode())


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_many_lines_arrive_in_order(serving: Serving, qos: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(500))
    with subscriber(serving, "-t", f"lines/{qos}", "-q", qos, "-C", "500") as sub:
        command = [sys.executable, "-m", "folkmoot", "pub", *place(serving), "-t", f"lines/{qos}", "-q", qos, "-l"]
        pub = subprocess.run(command, input=lines, capture_output=True, timeout=WAIT_S, check=False)
        assert (pub.returncode, pub.stderr) == (0, b"")
        assert sub.finish() == (0, lines)


def test_a_large_file_of_any_bytes(serving: Serving, tmp_path: Path) -> None:
    payload = bytes(range(256)) * 2000
    file = tmp_path / "payload"
    file.write_bytes(payload)
    with subscriber(serving, "-t", "large", "-N", "-C", "1") as sub:
        assert publish(serving, "-t", "large", "-f", str(file), "-q", "1") == 0
        assert sub.finish() == (0, payload)


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto_sub is not installed")
def test_mosquitto_sub_reads_what_we_publish(serving: Serving) -> None:
    words = "-D publish content-type text/csv -D publish user-property k v -D publish correlation-data c"
    arguments = ["-t", "x/ours", "-m", "hello", "-q", "2", "-r", "-D", "publish", "response-topic", "r", *words.split()]
    assert publish(serving, *arguments) == 0
    form = "%t %p %q %r %C %P %R %D"
    command = ["mosquitto_sub", "-V", "5", "-p", str(serving.port()), "-t", "x/ours", "-q", "2", "-C", "1", "-F", form]
    theirs = subprocess.run([*command, "-W", "20"], capture_output=True, timeout=WAIT_S, check=True).stdout
    assert theirs == b"x/ours hello 2 1 text/csv k:v r c\n"


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto_pub is not installed")
def test_we_read_what_mosquitto_pub_publishes(serving: Serving) -> None:
    with subscriber(serving, "-t", "x/theirs", "-q", "1", "-C", "1", "-F", "%t %p %q %C %P %E") as sub:
        words = "-D publish content-type text/csv -D publish user-property k v -D publish message-expiry-interval 60"
        command = ["mosquitto_pub", "-V", "5", "-p", str(serving.port()), "-t", "x/theirs", "-m", "hello", "-q", "2"]
        subprocess.run([*command, *words.split()], timeout=WAIT_S, check=True)
        assert sub.finish() == (0, b"x/theirs hello 1 text/csv k:v 60\n")


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto_sub is not installed")
@pytest.mark.parametrize(
    "form", ["%t|%p|%q|%r|%l|%x|%X|%m", "%C|%P|%R|%D|%F|%S", "@@ %% \\t\\\\", "%12t|%-12t|%.2t|%3l|%03l|%-3l|"]
)
def test_formats_print_what_mosquitto_sub_prints(serving: Serving, form: str, capfdbinary: Any) -> None:
    words = "-D publish content-type text/csv -D publish user-property k v -D publish correlation-data c"
    assert publish(serving, "-t", "x/form", "-m", "hello", "-q", "1", "-r", *words.split()) == 0
    options = ["-t", "x/form", "-q", "1", "-C", "1", "-F", form, "-D", "subscribe", "subscription-identifier", "9"]
    assert take(serving, *options) == 0
    ours = capfdbinary.readouterr().out
    command = ["mosquitto_sub", "-V", "5", "-p", str(serving.port()), *options, "-W", "20"]
    assert ours == subprocess.run(command, capture_output=True, timeout=WAIT_S, check=True).stdout


def test_no_subscriber_is_no_error_and_a_retained_message_is_kept(serving: Serving, capfdbinary: Any) -> None:
    assert publish(serving, "-t", "kept-1", "-m", "v", "-q", "1", "-r") == 0
    assert publish(serving, "-t", "kept-1/x", "-m", "w", "-q", "2", "-r") == 0
    assert take(serving, "-t", "kept-1/#", "-C", "2", "-v") == 0
    assert sorted(capfdbinary.readouterr().out.splitlines()) == [b"kept-1 v", b"kept-1/x w"]
    assert take(serving, "-t", "kept-1/#", "-T", "kept-1", "-C", "1", "-v") == 0
    assert take(serving, "-t", "kept-1/#", "-R", "-W", "0.3") == 27
    found = capfdbinary.readouterr()
    assert found.out == b"kept-1/x w\n"
    assert b"timed out" in found.err


@pytest.mark.parametrize("qos", ["1", "2"])
def test_a_receipt_is_printed(serving: Serving, qos: str, capfd: Any) -> None:
    wish = ["-D", "publish", "user-property", "folkmoot-receipt", "1"]
    assert publish(serving, "-t", f"receipt/{qos}", "-m", "v", "-q", qos, "-r", *wish) == 0
    assert re.fullmatch(
        rf"receipt receipt/{qos}: replicas 1, epoch \d+, partition \d+, sequence \d+\n", capfd.readouterr().out
    )
    assert publish(serving, "-t", f"receipt/{qos}", "-m", "v", "-q", qos, *wish) == 0
    assert capfd.readouterr().out == f"receipt receipt/{qos}: on no disk\n"


def test_retained_only_ends_at_the_first_live_message(serving: Serving) -> None:
    assert publish(serving, "-t", "kept-2", "-m", "v", "-q", "1", "-r") == 0
    with subscriber(serving, "-t", "kept-2", "--retained-only") as sub:
        assert publish(serving, "-t", "kept-2", "-m", "live", "-q", "1") == 0
        assert sub.finish() == (0, b"v\n")


def test_a_shared_subscription_gives_each_message_to_one(serving: Serving) -> None:
    options = ["-t", "$share/g/shared/#", "-q", "1"]
    with subscriber(serving, *options) as one, subscriber(serving, *options) as two:
        assert publish(serving, "-t", "shared/t", "-m", "x", "-q", "1", "--repeat", "20") == 0
        assert publish(serving, *[word for n in range(40) for word in ("-t", f"shared/{n}")], "-m", "y", "-q", "1") == 0
        # The broker has answered `pub` before it has delivered: interrupted too early, they would print less.
        await_true(lambda: sum("".join(sub.errors).count("Sending PUBACK") for sub in (one, two)) == 60)
        for sub in (one, two):
            sub.process.send_signal(signal.SIGINT)
        (status_one, output_one), (status_two, output_two) = one.finish(), two.finish()
    assert (status_one, status_two) == (130, 130)
    lines = output_one.splitlines() + output_two.splitlines()
    assert (lines.count(b"x"), lines.count(b"y")) == (20, 40)


@pytest.mark.parametrize("qos", ["1", "2"])
def test_a_session_keeps_what_was_not_printed(serving: Serving, qos: str, capfdbinary: Any) -> None:
    session = ["-c", "-i", f"keeper-{qos}", "-q", qos]
    assert take(serving, *session, "-t", f"keep/{qos}", "-E") == 0
    lines = [f"{number}".encode() for number in range(6)]
    for line in lines:
        assert publish(serving, "-t", f"keep/{qos}", "-m", line.decode(), "-q", qos) == 0
    assert take(serving, *session, "-C", "2") == 0
    assert take(serving, *session, "-C", "3") == 0
    assert take(serving, *session, "-C", "1") == 0
    assert capfdbinary.readouterr().out.splitlines() == lines
    # Unsubscribed and with a session that ends with the connection, nothing comes any more.
    assert take(serving, *session, "-U", f"keep/{qos}", "-x", "0", "-E") == 0
    assert publish(serving, "-t", f"keep/{qos}", "-m", "late", "-q", qos) == 0
    assert take(serving, *session, "-W", "0.3") == 27
    assert capfdbinary.readouterr().out == b""


def test_a_message_that_another_process_received_by_half_is_released(serving: Serving, capfdbinary: Any) -> None:
    with RawClient(serving) as first:
        first.connect("half")
        first.subscribe(b"half/t")
        assert publish(serving, "-t", "half/t", "-m", "one", "-q", "2") == 0
        message = first.expect_publish()
        first.send(Ack(PUBREC, message.packet_id, 0))
        assert first.expect_ack(PUBREL).packet_id == message.packet_id
    assert publish(serving, "-t", "half/t", "-m", "two", "-q", "2") == 0
    assert take(serving, "-c", "-i", "half", "-q", "2", "-C", "1") == 0
    assert capfdbinary.readouterr().out == b"two\n"
    with RawClient(serving) as second:
        assert second.connect("half").session_present
        assert second.receive(0.3) is None


def test_the_will_is_for_accidents(serving: Serving) -> None:
    def doomed(name: str) -> Child:
        return subscriber(serving, "-t", "x", "--will-topic", f"will/{name}", "--will-payload", name, "--will-qos", "1")

    with subscriber(serving, "-t", "will/#", "-q", "1", "-C", "1", "-v") as witness:
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with doomed("goodbye") as sub:
                sub.process.send_signal(number)
                assert sub.finish() == (status, b"")
                assert "Traceback" not in "".join(sub.errors)
        with doomed("killed") as sub:
            sub.process.kill()
        assert witness.finish() == (0, b"will/killed killed\n")


def test_a_reader_that_goes_ends_sub_quietly(serving: Serving) -> None:
    with subscriber(serving, "-t", "pipe") as sub:
        assert publish(serving, "-t", "pipe", "-m", "one", "-q", "1") == 0
        assert sub.read(4) == b"one\n"
        assert sub.process.stdout is not None
        sub.process.stdout.close()
        assert publish(serving, "-t", "pipe", "-m", "two", "-q", "1") == 0
        assert sub.process.wait(WAIT_S) == 0
        sub.thread.join(WAIT_S)
        assert "rror" not in "".join(sub.errors)


def test_half_a_stdin_is_published_at_once_and_ctrl_c_is_clean(serving: Serving) -> None:
    with subscriber(serving, "-t", "slow", "-C", "2") as sub:
        command = [sys.executable, "-m", "folkmoot", "pub", *place(serving), "-t", "slow", "-l", "-q", "1"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as pub:
            assert pub.stdin is not None
            assert pub.stderr is not None
            for line in (b"one\n", b"two\n"):
                pub.stdin.write(line)
                pub.stdin.flush()
                assert sub.read(4) == line
            pub.send_signal(signal.SIGINT)
            assert pub.wait(WAIT_S) == 130
            assert pub.stderr.read() == b""


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A node with a user, rules, and little patience."""
    path = tmp_path_factory.mktemp("strict")
    users = PasswordFile()
    users.set("ann", b"right pazzword")
    users.write(path / "users")
    config = f"""
[auth]
password_file = "{path / "users"}"
[[auth.rules]]
topics = ["open/#"]
[limits]
packet_bytes_max = 1000
qos_max = 1
"""
    with Serving(path / "data", "--mqtt", ANY, config=config) as node:
        yield node


@pytest.fixture
def ann(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of the user; the password comes by the environment."""
    monkeypatch.setenv(PASSWORD_VARIABLE, "right pazzword")
    return ["-u", "ann"]


def test_who_may_connect(
    strict: Serving, ann: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    message = ["-t", "open/t", "-m", "x", "-q", "1", "-d"]
    file = tmp_path / "password"
    file.write_text("right pazzword\n", encoding="utf-8")
    assert publish(strict, *message, *ann) == 0
    monkeypatch.delenv(PASSWORD_VARIABLE)
    assert publish(strict, *message, *ann, "--password-file", str(file)) == 0
    assert publish(strict, *message, *ann, "-P", "right pazzword") == 0
    text = capfd.readouterr().err
    for version, code in (("5", "0x86"), ("311", "0x86")):
        assert publish(strict, *message, *ann, "-P", "wrong pazzword", "-V", version) == 1
        refusal = capfd.readouterr().err
        assert f"refused the connection: {code} Bad User Name or Password" in refusal
        assert "--password-file" in refusal
        text += refusal
    assert "Sending CONNECT" in text
    assert "pazzword" not in text


@pytest.mark.parametrize("form", ["-q 1", "-q 1 -V 311"])
def test_a_refused_message_is_told(strict: Serving, ann: list[str], form: str, capfd: Any) -> None:
    status = publish(strict, *ann, "-t", "closed/t", "-m", "x", *form.split())
    text = capfd.readouterr().err
    if "311" in form:
        # MQTT 3.1.1 has no way to say so: the server acknowledges, or closes (section 3.3.5).
        assert status in (0, 1)
    else:
        assert status == 1
        assert text.startswith("error: the broker refused the message to closed/t: 0x87 Not authorized")


def test_a_refused_message_of_qos_2_is_told_with_its_reason(serving: Serving, capfd: Any) -> None:
    assert publish(serving, "-t", "$SYS/x", "-m", "x", "-q", "2", "--repeat", "3") == 1
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all("refused the message to $SYS/x: 0x87 Not authorized (" in line for line in lines[:3])
    assert lines[3] == "error: 3 of 3 messages were refused"


def test_a_refused_subscription_is_told(strict: Serving, ann: list[str], capfd: Any) -> None:
    assert take(strict, *ann, "-t", "closed/#") == 1
    assert "refused the subscription to closed/#: 0x87 Not authorized" in capfd.readouterr().err
    assert take(strict, *ann, "-t", "closed/#", "-t", "open/#", "-E") == 0
    assert "refused the subscription to closed/#" in capfd.readouterr().err
    assert take(strict, *ann, "-t", "closed/#", "--quiet") == 1
    assert capfd.readouterr().err == ""


def test_limits_are_told_before_anything_is_sent(strict: Serving, ann: list[str], capfd: Any) -> None:
    assert publish(strict, *ann, "-t", "open/t", "-m", "x", "-q", "2") == 1
    assert "give -q 1" in capfd.readouterr().err
    assert publish(strict, *ann, "-t", "open/t", "-m", "x" * 1000) == 1
    assert "1000 bytes" in capfd.readouterr().err
    assert publish(strict, *ann, "-t", "open/t", "-m", "x", "--will-topic", "open/w", "--will-qos", "2") == 1
    assert "0x9B QoS not supported" in capfd.readouterr().err


def test_where_nobody_listens_the_advice_is_to_start_a_node(capfd: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for command in (["pub", "-m", "x"], ["sub"]):
        assert main([*command, "-t", "a", "-p", str(port)]) == 1
        assert f"nobody listens at mqtt://127.0.0.1:{port}: start a node" in capfd.readouterr().err


def test_the_wrong_kind_of_connection_is_named(serving: Serving) -> None:
    def said(*arguments: str) -> str:
        # In processes of their own: paho leaves sockets open whose handshake failed.
        command = [sys.executable, "-m", "folkmoot", "pub", "-t", "a", "-m", "x", *arguments]
        run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert run.returncode == 1
        assert len(run.stderr.splitlines()) == 1
        return run.stderr

    port = {name: str(serving.port(name)) for name in serving.places}
    assert "TLS" in said("-p", port["mqtts"])
    assert "TLS" in said("-p", port["mqtt"], "--cafile", CA)
    assert "--cafile FILE" in said("--url", f"mqtts://localhost:{port['mqtts']}")
    assert "has no MQTT over WebSocket" in said("-p", port["mqtt"], "--ws")
    assert "--ws-path" in said("-p", port["ws"], "--ws", "--ws-path", "/elsewhere")
    assert "not an MQTT broker" in said("-p", port["admin"])
    # Another way to write 127.0.0.1, which the certificate does not have.
    assert "--insecure" in said("-h", "127.1", "-p", port["mqtts"], "--cafile", CA)
    assert main(["pub", "-t", "a", "-m", "x", "-h", "127.1", "-p", port["mqtts"], "--cafile", CA, "--insecure"]) == 0


def test_a_restarted_node_is_found_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    back = ["-c", "-i", "back", "-q", "1", "-t", "r"]
    with Serving(tmp_path / "data", "--mqtt", f"127.0.0.1:{port}") as node, subscriber(node, *back) as sub:
        assert publish(node, "-t", "r", "-m", "before", "-q", "1") == 0
        assert sub.read(7) == b"before\n"
        node.restart()
        assert publish(node, "-t", "r", "-m", "after", "-q", "1") == 0
        # The acknowledgement may have been lost with the node, and the message come again: that is QoS 1.
        line = sub.read(1)
        while line == b"b":
            assert sub.read(6) == b"efore\n"
            line = sub.read(1)
        assert line + sub.read(5) == b"after\n"
        sub.await_said("is lost; connecting again")
        sub.await_said("note: connected again")


def test_a_session_taken_over_ends_the_older_one(serving: Serving) -> None:
    with subscriber(serving, "-i", "same", "-t", "a") as sub, RawClient(serving) as other:
        other.connect("same", clean=True, session_s=0)
        assert sub.finish() == (1, b"")
        assert "0x8E Session taken over" in "".join(sub.errors)


def test_a_broker_that_says_nothing_is_not_waited_for_beyond_w(capfd: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = str(silent.getsockname()[1])
        assert main(["pub", "-p", port, "-t", "a", "-m", "x", "-W", "0.3"]) == 27
        assert "timed out" in capfd.readouterr().err


def test_unacknowledged_messages_are_counted(capfd: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve_badly() -> None:
            connection, _ = server.accept()
            connection.settimeout(WAIT_S)
            connection.recv(1000)
            connection.sendall(b"\x20\x03\x00\x00\x00")
            while connection.recv(1000):
                pass
            connection.close()

        thread = threading.Thread(target=serve_badly)
        thread.start()
        port = str(server.getsockname()[1])
        command = ["pub", "-p", port, "-t", "a", "-m", "x", "-q", "1", "--repeat", "3", "-W", "0.3"]
        assert main(command) == 27
        assert "3 of 3 messages not acknowledged" in capfd.readouterr().err
        thread.join(WAIT_S)


def test_leaving_takes_what_is_half_received_and_nothing_new() -> None:
    def bytes_of(*packets: Packet) -> bytes:
        return b"".join(encode(packet, 5) for packet in packets)

    def message(number: int) -> Publish:
        return Publish(b"a", b"%d" % number, 2, False, False, number)

    with socket.create_server(("127.0.0.1", 0)) as server:
        options = ConnectionOptions(port=server.getsockname()[1])
        link = Link(Connection(options, "sub", {}))
        printed: list[bytes] = []

        def receive(found: MQTTMessage) -> None:
            printed.append(bytes(found.payload))
            link.client.ack(found.mid, found.qos)

        link.on_message = receive
        # The kernel accepts for us, so that one thread can play both sides.
        answers = threading.Thread(target=link.open)
        answers.start()
        server.settimeout(WAIT_S)
        peer, _ = server.accept()
        peer.settimeout(WAIT_S)
        with peer:
            peer.sendall(bytes_of(Connack(False, 0)))
            answers.join(WAIT_S)
            peer.sendall(bytes_of(message(1)))
            while not link.client.half_received:
                link.turn()
            # Nobody reads until `settle`: it finds the new message before the release of the old one.
            peer.sendall(bytes_of(message(2), Ack(PUBREL, 1, 0)))
            link.settle()
            link.client.on_socket_close = None
            link.client.disconnect()
            framer = Framer(1 << 20)
            sent: list[Packet] = []
            while data := peer.recv(1000):
                sent += [decode(first, body, 5) for first, body in framer.feed(data)]
        acks = [(packet.kind, packet.packet_id) for packet in sent if isinstance(packet, Ack)]
        assert printed == [b"1"]
        assert acks == [(PUBREC, 1), (PUBCOMP, 1)]
