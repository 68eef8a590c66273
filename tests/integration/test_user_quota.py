"""One user tries to take everything that a real node has; another one is served all the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, Ack, Connack, Connect, Properties, Publish, Suback, Subscribe
from tests.integration.serving import RawClient, Serving

SESSIONS = 20
RETAINED = 50


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    users = tmp_path / "users"
    for name in ("ann", "bob"):
        command = [sys.executable, "-m", "folkmoot", "passwd", str(users), name, "--stdin"]
        subprocess.run(command, input=f"secret of {name}\n", text=True, check=True, capture_output=True)
    config = (
        f"[limits]\nsessions_max = {SESSIONS}\nretained_messages_max = {RETAINED}\nuser_subscriptions_max = 30\n"
        f'user_publish_rate_max = 200\n[auth]\npassword_file = "{users}"\n'
    )
    with Serving(tmp_path / "data", "--mqtt", "127.0.0.1:0", config=config) as node:
        yield node
        assert node.stop() == 0, node.log()


def enter(client: RawClient, name: str, client_id: str) -> int:
    """Begin a stored session of a user; return the code of CONNACK."""
    properties = Properties()
    properties.session_expiry = 3600
    password = f"secret of {name}".encode()
    client.socket.sendall(encode(Connect(5, client_id, False, 0, name, password, None, properties), 5))
    answer = client.receive()
    assert isinstance(answer, Connack), answer
    return answer.code


def publish(client: RawClient, topic: bytes, packet_id: int) -> int:
    client.send(Publish(topic, b"x", 1, True, False, packet_id))
    answer = client.receive()
    while not isinstance(answer, Ack):
        assert answer is not None
        answer = client.receive()
    assert answer.kind == PUBACK
    return answer.code


def test_who_takes_everything_leaves_a_tenth_to_the_others(serving: Serving) -> None:
    codes = []
    for number in range(SESSIONS + 2):
        with RawClient(serving) as client:
            codes.append(enter(client, "ann", f"a{number}"))
    assert codes == [0] * 18 + [0x97] * 4
    with RawClient(serving) as ann, RawClient(serving) as bob:
        assert enter(bob, "bob", "b") == 0
        assert enter(ann, "ann", "a0") == 0, "its session is there"
        found = [publish(ann, b"ann/%d" % number, number + 1) for number in range(RETAINED + 5)]
        assert [code for code in found if code >= 0x80] == [0x97] * 10
        assert publish(ann, b"ann/7", 100) < 0x80, "its own can be replaced"
        assert publish(bob, b"bob/1", 1) < 0x80
        filters = [(b"f/%d" % number, 0) for number in range(40)]
        for client, granted in ((ann, 30), (bob, 30)):
            client.send(Subscribe(9, filters))
            answer = client.receive()
            assert isinstance(answer, Suback), answer
            assert answer.codes == [0] * granted + [0x97] * 10
    serving.restart()
    with RawClient(serving) as late, RawClient(serving) as bob:
        assert enter(late, "ann", "another") == 0x97, "it is counted again"
        assert enter(bob, "bob", "b2") == 0
        assert publish(bob, b"bob/2", 1) < 0x80
