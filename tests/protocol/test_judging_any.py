"""Logins, subscriptions, restarts and reloads in any order: nothing stays open that the rules of now would refuse."""

from __future__ import annotations

from random import Random

import pytest

from folkmoot.auth.access import Access
from folkmoot.auth.acl import BOTH, PUBLISH, SUBSCRIBE, Rule
from folkmoot.auth.policy import Policy
from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5, Connect, Subscribe, Will
from folkmoot.session.connection import OPEN, REGISTERING
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer, properties

USERS = ("ann", "bob", "eve")
FILTERS = (b"a/x", b"a/#", b"+/x", b"#", b"$share/g/a/x", b"$stream/s/earliest/a/#", b"b")
TEMPLATES = (b"a/#", b"#", b"%u/#", b"a/x", b"b", b"+/x")
STEPS = 40


class World:
    """A node, clients that do anything, and an operator who changes anything."""

    def __init__(self, make: MakeBox, seed: int) -> None:
        self.random = Random(seed)
        users = dict.fromkeys(USERS, "0")
        self.box: Box = make(False, check=self._check, users=users, streams=[StreamConfig("s", b"a/#", 1)])
        self.steps = [self.enter, self.enter, self.subscribe, self.subscribe, self.leave, self.reload, self.restart]

    @property
    def access(self) -> Access:
        return self.box.node._state.access

    def _check(self, username: str | None, _password: bytes | None, _client_id: str) -> bool:
        users = self.access.users
        return users is not None and username in users

    def enter(self) -> None:
        """A client comes by a certificate, a name or nothing, perhaps with a will."""
        random = self.random
        name, certificate = random.choice((*USERS, None)), random.choice((None, None, "ann", "bob"))
        peer = self.box.client(random.choice(("c1", "c2", "annx", "d")))
        peer.open("tcp" if certificate is None else "tls", certificate_name=certificate)
        will = Will(random.choice((b"a/x", b"b")), b"w", 1, False, properties(will_delay=random.choice((None, 30))))
        made = properties(session_expiry=random.choice((0, EVER)))
        password = None if name is None else b""
        kept = will if random.random() < 0.4 else None
        peer.send(Connect(V5, peer.client_id, random.random() < 0.3, 0, name, password, kept, made))

    def open_peers(self) -> list[Peer]:
        found = [peer for peer in self.box.peers if peer.connection is not None and not peer.closed]
        return [peer for peer in found if peer.connection is not None and peer.connection.state == OPEN]

    def subscribe(self) -> None:
        """A client asks for anything."""
        peers = self.open_peers()
        if peers:
            wanted = [(name, 1) for name in self.random.sample(FILTERS, 3)]
            self.random.choice(peers).send(Subscribe(self.random.randint(1, 999), wanted))

    def leave(self) -> None:
        """A client loses its connection, or time passes."""
        peers = self.open_peers()
        if peers:
            self.random.choice(peers).lose()
        self.box.advance(self.random.choice((0, 40)) * SECOND)

    def restart(self) -> None:
        """The node is killed and started with the rules that were in force."""
        config, access = self.box.config, self.access
        config.policy, config.users, config.client_ids = access.policy, access.users, access.client_ids
        config.check_passwords, config.allow_anonymous = access.check_passwords, access.allow_anonymous
        config.user_from_certificate = access.user_from_certificate
        self.box.crash()

    def reload(self) -> None:
        """The operator changes anything; names are proved in one way at least."""
        random = self.random
        access = Access(self._policy())
        access.check_passwords = random.random() < 0.8
        if access.check_passwords:
            access.users = {name: random.choice("01") for name in USERS if random.random() < 0.75}
        access.user_from_certificate = not access.check_passwords or random.random() < 0.3
        access.allow_anonymous = random.random() < 0.6
        access.client_ids = ["%u*", "c*"] if random.random() < 0.2 else []
        self.box.node.reload(access, self.box.now)
        self.box.run()

    def _policy(self) -> Policy:
        random = self.random
        rules = []
        for _ in range(random.randint(0, 3)):
            who, client = random.choice(("*", "ann", "?*", "", "b*")), random.choice(("*", "c1"))
            action, group = random.choice((BOTH, PUBLISH, SUBSCRIBE)), random.choice(("*", "*", "", "g"))
            rules.append(Rule(random.random() < 0.6, action, who, client, [random.choice(TEMPLATES)], group))
        return Policy(rules, random.random() < 0.6)

    def look(self) -> None:
        """Nothing is there that would be refused now."""
        state, access = self.box.node._state, self.access
        for connection in state.connections.values():
            if connection.state in (OPEN, REGISTERING):
                assert not access.refuses(connection.proved, connection.username, connection.credential)
                assert connection.is_proved or not connection.username
        for session in state.sessions.values():
            for found in session.subscriptions.values():
                who = session.client_id, session.owner
                assert state.policy.may_subscribe(*who, found.topic_filter, found.share), (session, found.name)
            if session.connection is not None:
                assert (session.proved, session.username) == (
                    session.connection.is_proved,
                    session.connection.username,
                )
                if session.will is not None:
                    topic = session.will.message.topic
                    assert state.policy.may_publish(session.client_id, session.owner, topic), (session, topic)


@pytest.mark.parametrize("seed", [*range(20), 203, 1451])  # the last two: sessions get an owner who may do less
def test_nothing_stays_open_that_would_be_refused_now(make: MakeBox, seed: int) -> None:
    world = World(make, seed)
    for _ in range(STEPS):
        world.random.choice(world.steps)()
        world.box.run()
        world.look()
