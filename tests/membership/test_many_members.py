"""What a death costs in a large cluster, and what members send when nothing happens: both per member, and no more."""

from __future__ import annotations

import pytest

from folkmoot.kernel.pack import varint
from folkmoot.membership.configuration_log import lineage_of
from folkmoot.membership.control_message import BEAT, BEAT_ANSWER, kind_of
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.lifecycle import is_up
from folkmoot.peer.kind import CONFIGURATION_LOG, CONTROL
from folkmoot.raft.message import HEARTBEAT, HEARTBEAT_RESPONSE, decode_message
from tests.membership.simulated_control import MS, Cluster, Machine, S

PARTITIONS = 256
AGREED_NS = 50 * MS
MESSAGES = 3  # for each member, at most
BEATS = 35  # a second: to the controller, and a voter's answers to those of the log


def with_many_partitions(options: ControlOptions) -> None:
    options.partitions = PARTITIONS


class Large(Cluster):
    """A cluster whose messages are counted; what is checked after each turn elsewhere would take most of the time."""

    def __init__(self, size: int) -> None:
        self.beats: dict[str, int] = {}  # by sender
        self.others = 0
        super().__init__(1, size, with_many_partitions)
        for machine in self.machines:
            self.start(machine)
        while not self.is_whole():
            assert self.now < 60 * S, self.picture()
            self.run(20 * MS)
        while self.others:
            self.others = 0
            self.run(2 * S)

    def check(self, machine: Machine) -> None:
        """Leave that to small clusters."""

    def carry(self, sender: Machine, to: Machine, kind: int, body: bytes) -> None:
        """Count a message, and carry it."""
        if is_heartbeat(kind, body):
            self.beats[sender.name] = self.beats.get(sender.name, 0) + 1
        else:
            self.others += 1
        super().carry(sender, to, kind, body)

    def know(self, victim: Machine) -> bool:
        """Tell whether everybody knows that a member is away."""
        for machine in self.machines:
            if machine.control is not None:
                configuration = machine.control.configuration
                assert configuration is not None
                if is_up(configuration.members[victim.disk].state):
                    return False
        return True


def is_heartbeat(kind: int, body: bytes) -> bool:
    """Tell whether a message is sent again and again while nothing happens, or answers one."""
    if kind == CONTROL:
        return kind_of(body) in (BEAT, BEAT_ANSWER)
    assert kind == CONFIGURATION_LOG
    message = decode_message(body[len(varint(lineage_of(body))) :])
    return message.kind in (HEARTBEAT, HEARTBEAT_RESPONSE)


@pytest.mark.parametrize(
    "size",
    [5, 50, pytest.param(200, marks=pytest.mark.soak("40,000 links, and 200 members that each apply 400 entries"))],
)
def test_a_death_costs_three_messages_for_each_member_and_is_known_at_once(size: int) -> None:
    cluster = Large(size)
    (leader,) = [one for one in cluster.machines if one.control is not None and one.control.controller is not None]
    cluster.beats.clear()
    cluster.run(2 * S)
    assert cluster.others == 0, "nothing happens"
    beats = [count for name, count in cluster.beats.items() if name != leader.name]
    assert max(beats) <= 2 * BEATS, "a member does not send more of them to more others"
    victim = next(one for one in reversed(cluster.machines) if one is not leader)
    began = cluster.now
    cluster.kill(victim)
    while not cluster.know(victim):
        cluster.run(MS)
        assert cluster.now - began <= AGREED_NS
    assert cluster.others >= size - 2, "everybody was told"
    # Until all answers have come. What follows is another change: that leaderships are evened out.
    cluster.run(began + AGREED_NS - cluster.now)
    assert cluster.others <= MESSAGES * size
