"""Drawn runs: shared subscriptions and messages that expire, while leaderships move (A1 to A5, A13).

Members come and go, answer late or refuse, and are in several groups. In the end each group must have given each
message to one member: what was acknowledged is not lost while the group had a lasting member, what a member has
acknowledged or refused goes to no other one, and QoS 2 goes to nobody else at all.
"""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, V311
from tests.harness.soak import seeds
from tests.simulated_cluster.drawn import OPEN, DrawnClient, Message
from tests.simulated_cluster.drawn_groups import Gift, GroupLedger, Member
from tests.simulated_cluster.moving import SCARCE, SHAPES, Run

DRAWN = seeds(range(8), range(400))
PRESSED = seeds(range(6), range(200))
GROUPS = {"g0": "t/#", "g1": "t/0", "g2": "t/1"}
OWN = "o/0"  # a topic for subscriptions that are not shared


class GroupRun(Run):
    """A run whose clients are members of groups."""

    ledger: GroupLedger

    def __init__(self, seed: int, shapes: tuple[tuple[int, int, int, int], ...] = SHAPES) -> None:
        super().__init__(seed, shapes)
        self.restlessness = self.rng.choice((0.05, 0.2, 0.4))
        self.outcomes = {"judged": 0, "unsure": 0, "passed on": 0, "refused": 0}

    def _draw_clients(self) -> list[DrawnClient]:
        rng = self.rng
        self.ledger = GroupLedger()
        clients: list[DrawnClient] = []
        for number in range(rng.randint(3, 6)):
            version = rng.choice((V5, V5, V5, V311))
            names = [f"$share/{group}/{topic}" for group, topic in GROUPS.items()]
            names = rng.sample([*names, names[0], OWN], rng.randint(1, 3) if version == V5 else 1)
            filters = [(name, rng.choice((0, 1, 2) if "/g2/" in name else (1, 2, 2))) for name in dict.fromkeys(names)]
            window = rng.choice((0, 1, 2, 3)) if version == V5 else 0
            persistent = rng.random() < 0.6
            member = self._member(f"c{number}", version, persistent, filters, window)
            member.refuses = rng.choice((0, 0, 0.2))
            member.lazy = rng.random() < 0.4
            member.begins_anew = rng.choice((0, 0.5)) if version == V5 else 0
            clients.append(member)
        publishers = [self._member(f"p{number}", V5, rng.random() < 0.7, [(OWN, 2)]) for number in range(2)]
        return [*clients, *publishers]

    def _member(
        self, name: str, version: int, persistent: bool, filters: list[tuple[str, int]], window: int = 0
    ) -> Member:
        return Member(
            self.cluster,
            self.ledger,
            name,
            self.rng,
            version=version,
            persistent=persistent,
            filters=filters,
            window=window,
        )

    def ask(self, client: DrawnClient) -> None:
        """Have a connected client send something, or be lazy from now on, or no more."""
        rng = self.rng
        chance = rng.random()
        name = rng.choice(list(client.filters))
        if chance < 0.6 or client.name.startswith("p"):
            expiry_s = rng.choice((1, 2)) if client.version == V5 and rng.random() < 0.2 else 0
            topic = rng.choice(("t/0", "t/0", "t/1", "t/2", OWN))
            client.publish(topic, rng.choice((0, 1, 2, 1, 2)), topic != OWN and rng.random() < 0.1, expiry_s)
            self.note(f"{client} publishes {self.ledger.messages[len(self.ledger.messages)]}")
        elif chance < 0.75:
            self.note(f"{client} subscribes to {name}")
            client.subscribe(name)
        elif chance < 0.85:
            self.note(f"{client} unsubscribes from {name}")
            client.unsubscribe(name)
        else:
            client.lazy = not client.lazy
            self.note(f"{client} is {'lazy' if client.lazy else 'eager'}")

    # -- the end ------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        super()._judge()
        for message in self.ledger.messages.values():
            for group in GROUPS:
                gifts = self.ledger.of(group, message)
                self._judge_members(message, gifts)
                if message.acked and message.qos:
                    self._judge_loss(group, message)

    def _judge_members(self, message: Message, gifts: list[Gift]) -> None:
        """Who may get a message that another member had already."""
        allowed = message.sends if message.qos == 1 else 1  # QoS 1: as often as its publisher has sent it
        fresh = [gift.came_us for gift in gifts]  # when it came as one that its member had not got before
        for number, gift in enumerate(gifts):
            self.outcomes["refused"] += gift.refused_us > 0
            fresh += [came_us for came_us, dup in gift.again if not dup]
            self._judge_again(message, gift)
            assert not number or gifts[number - 1].qos < 2, f"[MQTT-4.8.2-5] {message} went to two members: {gifts}"
        passed_on = self._passed_on(gifts, sorted(fresh))
        self.outcomes["passed on"] += passed_on
        if not self.troubled:
            assert len(fresh) - passed_on <= allowed, f"{message} was given to {gifts}"

    def _passed_on(self, gifts: list[Gift], fresh: list[int]) -> int:
        """How many copies came because the session that had one before is over, and had not answered it."""
        over = [gift.released_us for gift in gifts if gift.qos == 1 and not gift.acked_us and not gift.refused_us]
        passed_on = 0
        for over_us in sorted(moment for moment in over if moment):
            later = [came_us for came_us in fresh if came_us >= over_us]
            if later:
                fresh.remove(later[0])
                passed_on += 1
        return passed_on

    def _judge_again(self, message: Message, gift: Gift) -> None:
        """What a session gets again, it has not answered; QoS 2 is not given again without a refusal that was lost."""
        for came_us, dup in gift.again:
            assert gift.qos or message.sends > 1, f"{message} came twice with QoS 0: {gift}"
            assert gift.qos < 2 or gift.will_refuse, f"A4: {message} was given again: {gift}"
            assert gift.qos < 2 or dup, f"[MQTT-4.8.2-6] {message} was given again: {gift}"
            answered_us = gift.acked_us or gift.refused_us
            if not self.troubled and message.sends == 1:
                assert dup, f"{message} came twice: {gift}"
                assert not answered_us or came_us <= answered_us, f"{message} comes after its answer: {gift}"

    def _judge_loss(self, group: str, message: Message) -> None:
        """A1: what was acknowledged came to a member, if the group has had a lasting one since before it was sent."""
        members = [client for client in self.clients if isinstance(client, Member)]
        if not any(client.lasting_wish(group, message) for client in members):
            return
        inside = [one for one in members if any(name.startswith(f"$share/{group}/") for name in one.filters)]
        if message.expiry_s or self._may_be_lost(group, message, inside):
            self.outcomes["unsure"] += 1
            return
        self.outcomes["judged"] += 1
        assert self.ledger.of(group, message), f"A1: {group} has not got {message}"

    def _may_be_lost(self, group: str, message: Message, inside: list[Member]) -> bool:
        """Whether a member may have taken the message with it that nobody else is given then."""
        for member in inside:
            qos = next(qos for name, qos in member.filters.items() if name.startswith(f"$share/{group}/"))
            if not qos:
                return True
            if min(message.qos, qos) == 2 and any(moment > message.sent for moment in member.over.values()):
                return True  # [MQTT-4.8.2-5] its session ended while it was being sent to it, perhaps
            if not member.persistent and self.troubled:
                return True
        return False

    def _probe(self) -> None:
        """What is published in the end at any node comes to one member of each group."""
        probers = [self._member(f"probe-{site.name}", V5, False, [(OWN, 1)]) for site in self.cluster.live()]
        for prober, site in zip(probers, self.cluster.live(), strict=True):
            prober.connect(site.name)
        self.clients += probers
        self._admit(probers)
        for client in self.clients:
            client.lazy = False
        first = len(self.ledger.messages) + 1
        for prober in probers:
            for topic in ("t/0", "t/1", "t/2", OWN):
                prober.publish(topic, 1, False)
        self._rest(2)
        members = [client for client in self.clients if isinstance(client, Member)]
        for number in range(first, len(self.ledger.messages) + 1):
            message = self.ledger.messages[number]
            assert message.acked, f"{message} is not acknowledged"
            for group in GROUPS:
                sure = [client.is_member(message.topic, group) for client in members]
                gifts = self.ledger.of(group, message)
                if True in [one for one, client in zip(sure, members, strict=True) if client.state == OPEN]:
                    assert len(gifts) == 1, f"{group} gives {message} to {gifts}"
                elif None not in sure and True not in sure:
                    assert not gifts, f"{group} gives {message} to {gifts}"
            for client in members:
                if client.state == OPEN and message.topic == OWN and client.sure.get(OWN) is not None:
                    assert len(client.got.get(number, [])) == client.sure[OWN], f"{client} and {message}"


@pytest.mark.parametrize("seed", DRAWN)
def test_each_message_of_a_group_goes_to_one_member_while_leaderships_move(seed: int) -> None:
    GroupRun(seed).judged(pressed=False)


@pytest.mark.parametrize("seed", PRESSED)
def test_each_message_of_a_group_goes_to_one_member_when_leaderships_are_handed_on_early(seed: int) -> None:
    GroupRun(seed, SCARCE).judged(pressed=True)
