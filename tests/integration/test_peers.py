"""Nodes as processes: how they meet, whom they let in, and how soon they notice that one is gone."""

from __future__ import annotations

import json
import re
import signal
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from folkmoot.config.password import PasswordFile
from folkmoot.mqtt.packet import Connack, Connect
from tests.integration.authority import Authority
from tests.integration.handshake import SlowHandshake
from tests.integration.serving import CERTIFICATES, RawClient, Serving, await_true

SECRET = "a word of more than sixteen characters"


def tls(certificate: str) -> str:
    return f"""
[cluster.tls]
certificate = "{CERTIFICATES / certificate}.pem"
key = "{CERTIFICATES / certificate}.key"
ca = "{CERTIFICATES / "nodes"}.pem"
"""


class Nodes:
    """Processes of one cluster, each with a peer address that it keeps when it is started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[Serving] = []

    def start(self, name: str, secret: str = SECRET, config: str = "") -> Serving:
        secret_file = self.folder / f"{name}.secret"
        secret_file.write_text(secret.replace(" ", "-"))
        secret_file.chmod(0o600)
        seeds = [word for node in self.running for word in ("--seed", f"127.0.0.1:{node.port('peer')}")]
        arguments = ["--node-id", name, "--mqtt", "127.0.0.1:0", "--peer", "127.0.0.1:0", *seeds]
        if secret:
            arguments += ["--secret-file", str(secret_file)]
        node = Serving(self.folder / name, *arguments, config=config).start()
        node.arguments[node.arguments.index("--peer") + 1] = f"127.0.0.1:{node.port('peer')}"
        self.running.append(node)
        return node


@pytest.fixture
def nodes(tmp_path: Path) -> object:
    made = Nodes(tmp_path)
    yield made
    for node in made.running:
        if node.process is not None:
            node.kill()


def says(node: Serving, *words: str) -> Callable[[], bool]:
    return lambda: any(all(word in line for word in words) for line in node.log().splitlines())


def lines(node: Serving, *words: str) -> int:
    return sum(all(word in line for word in words) for line in node.log().splitlines())


def test_nodes_meet_and_a_killed_one_is_missed_at_once(nodes: Nodes) -> None:
    one, two = nodes.start("one"), nodes.start("two")
    await_true(says(one, "peer_up", "node=two"))
    await_true(says(two, "peer_up", "node=one"))
    time.sleep(1.5)
    began = time.monotonic()
    two.kill()
    await_true(says(one, "peer_dead", "node=two", "refused"))
    assert time.monotonic() - began < 0.5
    two.start()
    await_true(lambda: one.log().count("peer_up") == 2)


def test_a_node_that_hangs_is_missed_and_met_again_without_a_new_start(nodes: Nodes) -> None:
    one, two = nodes.start("one"), nodes.start("two")
    await_true(says(one, "peer_up", "node=two"))
    two.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
    try:
        await_true(says(one, "peer_down", "node=two", "nothing heard"))
    finally:
        two.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
    await_true(lambda: one.log().count("peer_up") == 2)


def test_a_node_with_another_secret_is_not_let_in_and_both_say_so(nodes: Nodes) -> None:
    one = nodes.start("one")
    two = nodes.start("two", "another word of more than sixteen characters")
    await_true(says(one, "peer_refuse", "cluster.secret_file"))
    await_true(says(two, "peer_refuse", "cluster.secret_file"))
    three = nodes.start("three", "")
    await_true(says(three, "peer_refuse", "cluster.secret_file"))
    assert "peer_up" not in one.log() + two.log() + three.log()


def test_two_nodes_with_one_id_are_told(nodes: Nodes) -> None:
    one = nodes.start("same")
    nodes.folder = nodes.folder / "other"
    nodes.folder.mkdir()
    two = nodes.start("same")
    await_true(says(one, "ERROR", "node.id"))
    await_true(says(two, "ERROR", "node.id"))


def test_certificates_are_checked_on_both_sides(nodes: Nodes) -> None:
    one = nodes.start("one", config=tls("node"))
    two = nodes.start("two", config=tls("node"))
    await_true(says(one, "peer_up", "node=two"))
    await_true(says(two, "peer_up", "node=one"))
    without = nodes.start("without")
    await_true(says(without, "peer_unreachable"))
    stranger = nodes.start("stranger", config=tls("other"))
    await_true(says(stranger, "peer_unreachable"))
    for node in (one, two):
        assert "node=without" not in node.log()
        assert "node=stranger" not in node.log()


def reload(node: Serving) -> None:
    before = node.log().count(" reloaded")
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    await_true(lambda: node.log().count(" reloaded") > before)


def test_an_authority_of_nodes_that_was_removed_is_not_trusted_any_more(nodes: Nodes) -> None:
    """Neither for links that are there nor for new ones; when it is back, the nodes meet again."""
    authority = nodes.folder / "nodes.pem"
    authority.write_bytes((CERTIFICATES / "nodes.pem").read_bytes())
    config = tls("node").replace(str(CERTIFICATES / "nodes.pem"), str(authority))
    one = nodes.start("one", config=config)
    two = nodes.start("two", config=tls("node"))
    await_true(says(one, "peer_up", "node=two"))
    reload(one)
    authority.write_bytes((CERTIFICATES / "ca.pem").read_bytes())
    before = two.log().count("peer_down")
    reload(one)
    await_true(lambda: two.log().count("peer_down") > before)
    met = one.log().count("peer_up")
    time.sleep(1.0)  # several dials
    assert one.log().count("peer_up") == met
    authority.write_bytes((CERTIFICATES / "nodes.pem").read_bytes())
    reload(one)
    await_true(lambda: one.log().count("peer_up") > met)


def issued(authority: Authority, name: str) -> str:
    """Return the settings of a node with a certificate of an authority, and with its revocation list."""
    certificate, key = authority.issue(name)
    return (
        f'[cluster.tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
        f'ca = "{authority.folder}/ca.pem"\ncrl = "{authority.folder}/crl.pem"\n'
    )


def test_a_certificate_of_a_node_that_was_revoked(nodes: Nodes) -> None:
    """Its links end at a reload of the others, and no new one is made; the links of the others stay."""
    authority = Authority(nodes.folder / "pki", "nodes")
    one = nodes.start("one", config=issued(authority, "one"))
    two = nodes.start("two", config=issued(authority, "two"))
    thief = nodes.start("thief", config=issued(authority, "thief"))
    for node in (one, two):
        await_true(says(node, "peer_up", "node=thief"))
    await_true(says(one, "peer_up", "node=two"))
    authority.revoke("thief")
    config = issued(authority, "late")
    authority.revoke("late")
    for node in (one, two):
        reload(node)
        await_true(says(node, "peer_down", "node=thief"))
    met = [lines(node, "peer_up", "node=thief") for node in (one, two)]
    late = nodes.start("late", config=config)
    await_true(says(late, "peer_unreachable"))
    time.sleep(1.0)  # several dials
    assert [lines(node, "peer_up", "node=thief") for node in (one, two)] == met
    assert not says(late, "peer_up")()
    assert not says(one, "peer_down", "node=two")()
    assert not says(two, "peer_down", "node=one")()
    thief.kill()


def test_a_handshake_that_began_before_a_reload_is_judged_after_it(nodes: Nodes) -> None:
    """A node whose certificate was revoked meanwhile is refused, although its handshake succeeds by the former list."""
    authority = Authority(nodes.folder / "pki", "nodes")
    one = nodes.start("one", config=issued(authority, "one"))
    contexts = {}
    for name in ("thief", "honest"):
        contexts[name] = ssl.create_default_context(cafile=str(authority.folder / "ca.pem"))
        contexts[name].check_hostname = False
        contexts[name].load_cert_chain(*authority.issue(name))
    with (
        SlowHandshake(one.port("peer"), contexts["thief"]) as thief,
        SlowHandshake(one.port("peer"), contexts["honest"]) as honest,
    ):
        authority.revoke("thief")
        reload(one)
        assert honest.finish() > 0, "the node's random number"
        assert thief.finish() == 0
    await_true(says(one, "connection_failed", "the certificate was revoked"))


def test_a_secret_is_replaced_in_three_steps(nodes: Nodes) -> None:
    one, two = nodes.start("one"), nodes.start("two")
    await_true(says(one, "peer_up", "node=two"))
    former, newer = SECRET.replace(" ", "-"), "another-word-of-more-than-sixteen-characters"
    for words in ((former, newer), (newer, former), (newer,)):
        for node, name in ((one, "one"), (two, "two")):
            (nodes.folder / f"{name}.secret").write_text("\n".join(words))
            reload(node)
            time.sleep(0.3)
            assert "peer_refuse" not in one.log() + two.log()
    two.kill()
    two.start()
    await_true(lambda: one.log().count("peer_up") >= 2 and "peer_refuse" not in two.log())


def checks(node: Serving) -> int:
    """How many passwords the node has hashed."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port('admin')}/metrics", timeout=20) as answer:
        found = re.search(rb"^folkmoot_password_checks_total (\d+)", answer.read(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def is_ready(node: Serving) -> bool:
    """Whether the node has its data and serves."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{node.port('admin')}/health/ready", timeout=20) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False


def has_everything(node: Serving, name: str) -> bool:
    """Whether a node is in sync with all partitions, as another one knows."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port('admin')}/api/v1/status", timeout=20) as answer:
        status = json.load(answer)
    (found,) = [one for one in status["nodes"] if one["id"] == name]
    return bool(found["leads"] + found["follows"] == status["partitions"]["total"])


def test_a_password_that_one_node_has_found_right_is_checked_nowhere_again(nodes: Nodes) -> None:
    """Not after a failover, nor by a node that was restarted and has asked; a wrong one is checked everywhere."""
    users = PasswordFile()
    users.set("ann", b"secret")
    users.write(nodes.folder / "users")
    config = f'[admin]\naddress = "127.0.0.1:0"\n[auth]\npassword_file = "{nodes.folder}/users"\n'
    one, two = nodes.start("one", config=config), nodes.start("two", config=config)

    def enter(node: Serving, password: bytes) -> int:
        with RawClient(node) as client:
            client.send(Connect(5, "of-ann", True, 0, "ann", password, None, None))
            answer = client.receive()
            assert isinstance(answer, Connack), answer
            return answer.code

    await_true(says(one, "view_installed", "two"))
    assert (enter(one, b"secret"), checks(one)) == (0, 1)
    assert (enter(two, b"secret"), checks(two)) == (0, 0)
    assert (enter(two, b"wrong"), checks(two)) == (0x86, 1)
    two.restart()
    await_true(lambda: one.log().count("peer_up") >= 2)
    await_true(lambda: is_ready(two))
    time.sleep(1.0)  # it asks within a heartbeat
    assert (enter(two, b"secret"), checks(two)) == (0, 0)
    await_true(lambda: has_everything(one, "two"))
    one.kill()  # the only voter of two: the other one forks
    await_true(lambda: "cluster_forked" in two.log() and is_ready(two))
    assert (enter(two, b"secret"), checks(two)) == (0, 0)


def test_beyond_loopback_a_secret_is_demanded(tmp_path: Path) -> None:
    node = Serving(tmp_path / "n", "--mqtt", "127.0.0.1:0", "--peer", "0.0.0.0:0", "--advertise", "192.0.2.1:7883")
    with pytest.raises(AssertionError, match=r"cluster\.secret_file"):
        node.start()
