"""Excuses by causes: what the simulator did to this message's machines excuses it, and nothing else does."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.mqtt.packet import V5, Properties, Publish
from folkmoot.sim.causes import Causes
from folkmoot.sim.check_delivery import DeliveryChecker
from folkmoot.sim.check_will import MAYBE, YES, WillChecker
from folkmoot.sim.excuse import EXCUSES, share_of, too_seldom
from folkmoot.sim.fact import Attempt, Lane, Life, Message, SessionRecord, Sub
from folkmoot.sim.history import FORK_US, HEAL_US, MEETING_US, History
from folkmoot.sim.ledger import Ledger
from folkmoot.sim.profile import NEVER_EXPIRES_S
from folkmoot.sim.trace import Trace
from folkmoot.sim.world import World

DOCS = Path(__file__).parents[2] / "docs"


class Machines:
    """Machines by name, the links between them, and the history of both."""

    def __init__(self, count: int = 3, copies: int = 0) -> None:
        self.world = World(1, Trace())
        self.cuts: set[tuple[str, str]] = set()
        self.hosts: list[Any] = [
            SimpleNamespace(
                leaves_us=[],
                stops_us=[],
                leaving=False,
                name=f"n{number}",
                up=True,
                paused=False,
                dark=False,
                hung=False,
                node=object(),
                member=True,
                starts_us=[self.world.now],
                emptied_us=[],
                blank=False,
                put_out=False,
            )
            for number in range(1, count + 1)
        ]
        self.history = History(self.world, self.hosts, copies or count)
        mesh: Any = SimpleNamespace(passes=lambda one, two: (one.name, two.name) not in self.cuts)
        self.history.mesh = mesh
        self.history.look()

    def wait(self, us: int) -> None:
        self.world.run(self.world.now + us)

    def cut(self, *pairs: tuple[str, str]) -> None:
        self.cuts = {direction for pair in pairs for direction in (pair, pair[::-1])}
        self.history.look()

    def run(self, number: int, *, up: bool) -> None:
        self.hosts[number - 1].up = up
        self.history.look()

    def judge(self, *, majority: bool = False) -> Causes:
        return Causes(self.history, majority=majority)

    def link(self, number: int) -> Any:
        return SimpleNamespace(
            server=self.hosts[number - 1],
            sent_bytes=0,
            ended_us=NEVER,
            cut_us=NEVER,
            opened_us=self.world.now,
            closed_at_bytes=NEVER,
        )

    def life(self, number: int, expiry_s: int) -> Life:
        life = Life("c", V5, self.link(number), False, self.world.now)
        life.accepted_us = self.world.now
        life.expiry_low_s = expiry_s
        return life

    def message(self, qos: int, *links: Any) -> Message:
        message = Message(0, "a", Publish(b"t", b"m", qos))
        message.lane = Lane(0)
        message.lane.messages.append(message)
        message.attempts = [Attempt(self.world.now, link, 0) for link in links]
        return message


def test_machines_that_cannot_reach_each_other_are_apart_after_a_while_and_until_they_have_healed() -> None:
    machines = Machines()
    begin = machines.world.now
    machines.wait(SECOND)
    machines.cut(("n1", "n2"), ("n1", "n3"))
    cut = machines.world.now
    machines.wait(FORK_US // 2)
    assert not machines.history.apart("n1", "n2", begin)
    machines.wait(FORK_US)
    assert machines.history.apart("n1", "n2", begin)
    assert not machines.history.apart("n2", "n3", begin), "these two reach the same machines"
    assert not machines.history.apart("n1", "n2", begin, cut - 1)
    machines.cut()
    mended = machines.world.now
    machines.wait(2 * HEAL_US)
    assert machines.history.apart("n1", "n2", mended + HEAL_US - 1)
    assert not machines.history.apart("n1", "n2", mended + HEAL_US + 1)


def test_a_short_cut_makes_no_sides() -> None:
    machines = Machines()
    machines.cut(("n1", "n2"))
    machines.wait(FORK_US // 2)
    machines.cut()
    machines.wait(SECOND)
    assert not machines.history.apart("n1", "n2", 0)


@pytest.mark.parametrize("short", [True, False])
def test_machines_that_restart_again_and_again_meet_nobody(short: bool) -> None:
    """One of three is left, since nobody runs for long enough to be elected; or the other two meet it in between."""
    machines = Machines()
    began = machines.world.now
    for _ in range(8):
        for number in (2, 3):
            machines.run(number, up=False)
        machines.wait(FORK_US // 4)
        for number in (2, 3):
            machines.run(number, up=True)
        machines.wait(MEETING_US // 2 if short else 2 * MEETING_US)
    assert machines.history.apart("n1", "n2", began) == short


@pytest.mark.parametrize("heals", [False, True])
@pytest.mark.parametrize("split_us", [2 * FORK_US, 0])
@pytest.mark.parametrize("bridge", [False, True])
def test_a_machine_that_comes_up_takes_the_side_of_those_that_it_reaches(
    bridge: bool, split_us: int, heals: bool
) -> None:
    """The sides are older than the machine: it needs no time of its own to become a part of one of them."""
    machines = Machines()
    machines.run(3, up=False)
    cuts = [("n1", "n2")] if bridge else [("n1", "n2"), ("n1", "n3")]
    machines.cut(*cuts)
    machines.wait(split_us)
    machines.run(3, up=True)
    came = machines.world.now
    machines.wait(FORK_US // 4)
    if heals:
        machines.cut()
        machines.wait(FORK_US // 4)
    assert machines.history.apart("n1", "n3", came) == (split_us > 0)
    assert machines.history.apart("n2", "n3", came) == (split_us > 0 and bridge)
    assert not heals or not machines.history.parted("n3", came, NEVER), "no sides have parted then"


def test_sides_part_when_two_machines_of_one_side_lose_each_other() -> None:
    """In a ring no two machines reach the same others: any two may be of two sides, and all of them of one."""
    ring = [("n2", "n3"), ("n1", "n4")]
    machines = Machines(4)
    machines.cut(*ring)
    machines.wait(10 * SECOND)
    lost = machines.world.now
    machines.cut(*ring, ("n1", "n3"))
    machines.wait(FORK_US // 2)
    machines.cut(*ring)
    machines.wait(SECOND)
    assert not machines.history.parted("n1", lost, NEVER), "for too short a time"
    again = machines.world.now
    machines.cut(*ring, ("n1", "n3"))
    machines.wait(2 * FORK_US)
    assert [machines.history.parted(name, again, again) for name in ("n1", "n2", "n3", "n4")] == [
        True,
        False,
        True,
        False,
    ]
    assert not machines.history.parted("n1", again + 1, NEVER)


@pytest.mark.parametrize(
    ("ring", "majority", "excused"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_a_message_may_be_with_a_machine_that_its_node_reaches_when_that_one_loses_others(
    ring: bool, majority: bool, excused: bool
) -> None:
    """n2 takes it, and n1 loses n3 before it is acknowledged."""
    cuts = [("n2", "n3"), ("n1", "n4")] if ring else []
    machines = Machines(4)
    judge = machines.judge(majority=majority)
    machines.cut(*cuts)
    machines.wait(10 * SECOND)
    message = machines.message(2, machines.link(2))
    machines.wait(SECOND // 4)
    if ring:
        machines.cut(*cuts, ("n1", "n3"))
    machines.wait(2 * FORK_US)
    message.acked_us = machines.world.now
    assert judge.stored_twice(message) == excused


@pytest.mark.parametrize(
    ("down", "cut_us", "apart"), [(True, 2 * FORK_US, True), (False, 2 * FORK_US, False), (True, 0, False)]
)
def test_a_machine_may_go_over_to_another_side_while_those_of_its_own_do_not_run(
    down: bool, cut_us: int, apart: bool
) -> None:
    """n1 and n2 are together. n2 comes up again when n1 meets n3 and n4, which are a side of their own."""
    machines = Machines(5)
    machines.cut(*[(one, other) for one in ("n1", "n2") for other in ("n3", "n4", "n5")])
    machines.wait(cut_us)
    if down:
        machines.run(2, up=False)
    machines.wait(SECOND // 4)
    machines.hosts[1].up = True
    met = machines.world.now
    machines.cut()
    machines.wait(SECOND)
    assert machines.history.apart("n1", "n2", met) == apart
    assert not machines.history.apart("n1", "n2", 0, met - 1)
    machines.wait(2 * HEAL_US)
    assert not machines.history.apart("n1", "n2", met + HEAL_US + 1)


def test_the_middle_of_a_bridge_may_be_of_either_side() -> None:
    machines = Machines()
    machines.cut(("n1", "n3"))
    machines.wait(2 * FORK_US)
    assert machines.history.apart("n1", "n2", 0)
    assert machines.history.apart("n2", "n3", 0)


BEYOND = [(one, other) for one in ("n1", "n2", "n3") for other in ("n4", "n5")]
"""The links between three machines and the other two of five."""


def expect_one_side_after_heal(machines: Machines) -> None:
    machines.cut()
    healed = machines.world.now
    machines.wait(2 * HEAL_US)
    assert not machines.history.apart("n1", "n2", healed + HEAL_US + 1)


@pytest.mark.parametrize("bridged", [False, True])
def test_a_side_stays_one_as_long_as_those_that_it_meets_are_reached_by_a_bridge_only(bridged: bool) -> None:
    """n1 was alone when n2 and n3 reached the others; now all three reach each other, and the others over n3."""
    machines = Machines(5)
    machines.cut(*[("n1", other) for other in ("n2", "n3", "n4", "n5")])
    machines.wait(2 * FORK_US)
    machines.cut(*[pair for pair in BEYOND if not bridged or "n3" not in pair])
    met = machines.world.now
    machines.wait(2 * HEAL_US)
    assert machines.history.apart("n1", "n2", met + HEAL_US + 1) == bridged
    expect_one_side_after_heal(machines)


@pytest.mark.parametrize("bridged", [False, True])
def test_one_that_was_down_is_of_the_side_that_it_meets_only_if_it_meets_most(bridged: bool) -> None:
    """n1 was alone. n2 was down, and comes up where it reaches n1, and the others over n3 only or directly."""
    machines = Machines(5)
    machines.cut(*[("n1", other) for other in ("n2", "n3", "n4", "n5")])
    machines.wait(2 * FORK_US)
    machines.run(2, up=False)
    machines.wait(FORK_US)
    machines.cut(*[pair for pair in BEYOND if "n3" not in pair] if bridged else [])
    back = machines.world.now
    machines.run(2, up=True)
    machines.wait(2 * HEAL_US)
    assert machines.history.apart("n1", "n2", back + HEAL_US + 1) == bridged
    expect_one_side_after_heal(machines)


def test_a_machine_that_is_cut_off_from_everything_may_become_a_side_of_its_own() -> None:
    """Nobody reaches it meanwhile; but afterwards it may serve clients for a while, as it is."""
    machines = Machines()
    machines.hosts[0].up, machines.hosts[0].dark = False, True
    machines.history.look()
    machines.wait(2 * FORK_US)
    machines.hosts[0].up, machines.hosts[0].dark = True, False
    machines.history.look()
    assert machines.history.apart("n1", "n2", machines.world.now)
    assert machines.history.down("n1", 0)
    assert [[host.name for host in group] for group in machines.history.reached()] == [
        ["n1", "n2", "n3"],
        ["n2", "n1", "n3"],
        ["n3", "n1", "n2"],
    ]


def test_a_machine_that_is_down_is_no_side_unless_half_of_all_are() -> None:
    machines = Machines(5)
    machines.run(1, up=False)
    machines.wait(2 * FORK_US)
    assert not machines.history.forked("n2", 0)
    machines.run(2, up=False)
    machines.run(3, up=False)
    machines.wait(2 * FORK_US)
    assert machines.history.apart("n4", "n1", 0)
    assert machines.history.down("n1", 0)
    assert machines.history.falls(0) == 3


@pytest.mark.parametrize("blank", [False, True])
def test_a_machine_whose_folder_is_lost_makes_no_majority(blank: bool) -> None:
    machines = Machines()
    machines.hosts[1].blank = blank
    machines.run(3, up=False)
    machines.wait(2 * FORK_US)
    assert machines.history.apart("n1", "n3", 0) == blank


def test_a_machine_that_is_evicted_makes_no_majority() -> None:
    machines = Machines()
    machines.hosts[1].put_out = True
    machines.run(3, up=False)
    machines.wait(2 * FORK_US)
    assert machines.history.apart("n1", "n3", 0)


def test_a_machine_is_away_from_another_one_since_it_reaches_it_no_more() -> None:
    machines = Machines()
    assert machines.history.away_since("n1", "n2") == NEVER
    machines.wait(SECOND)
    machines.cut(("n1", "n2"))
    cut_us = machines.world.now
    machines.wait(SECOND)
    assert machines.history.away_since("n1", "n2") == cut_us
    machines.run(1, up=False)
    machines.wait(SECOND)
    assert machines.history.away_since("n1", "n2") == cut_us
    assert machines.history.away_since("n2", "n3") == NEVER


def test_a_machine_that_an_operator_has_put_out_is_missing_until_its_node_starts_again() -> None:
    machines = Machines()
    machines.wait(SECOND)
    machines.hosts[0].put_out = True
    machines.history.look()
    put_out = machines.world.now
    machines.wait(10 * SECOND)
    assert machines.history.troubled(put_out + 5 * SECOND, machines.world.now)
    machines.hosts[0].put_out = False
    machines.history.look()
    machines.wait(SECOND)
    assert not machines.history.troubled(put_out + 10 * SECOND + 1, machines.world.now)
    assert not machines.history.troubled(0, put_out - 1)


def test_a_pause_is_no_failure() -> None:
    machines = Machines()
    machines.hosts[0].up = False
    machines.hosts[0].paused = True
    machines.history.look()
    machines.wait(2 * FORK_US)
    assert not machines.history.down("n1", 0)
    assert not machines.history.troubled(0, NEVER)


@pytest.mark.parametrize(
    ("stands_us", "runs_us", "times", "excused"),
    [
        (SECOND // 4, SECOND // 100, 5, True),
        (SECOND // 4, SECOND // 100, 3, False),  # over before its lease is
        (SECOND // 4, SECOND // 3, 5, False),  # it runs for long enough in between to answer in time
    ],
)
def test_a_member_that_stutters_for_longer_than_a_lease_excuses_what_is_lost_on_its_way(
    stands_us: int, runs_us: int, times: int, excused: bool
) -> None:
    machines = Machines()
    message = machines.message(0, machines.link(1))
    for _ in range(times):
        machines.hosts[1].paused = True
        machines.history.look()
        machines.wait(stands_us)
        machines.hosts[1].paused = False
        machines.history.look()
        machines.wait(runs_us)
    assert machines.judge().gap_of_qos0(message) is excused
    assert machines.judge(majority=True).gap_of_qos0(message) is excused
    machines.wait(SECOND)
    assert not machines.judge().gap_of_qos0(machines.message(0, machines.link(1))), "it has run since"


@pytest.mark.parametrize(
    ("staged", "away", "back_us", "excused"),
    [
        (True, True, 0, True),
        (True, True, HEAL_US // 2, True),
        (True, True, 2 * HEAL_US, False),  # it had time enough
        (True, False, 0, False),
        (False, True, 0, False),  # such a message is refused
    ],
)
def test_a_transaction_may_wait_for_a_partition_for_longer_than_a_transient_session_lives(
    staged: bool, away: bool, back_us: int, excused: bool
) -> None:
    machines = Machines()
    machines.run(3, up=not away)
    machines.wait(3 * HEAL_US)
    record = SessionRecord(0, "c", V5, 0, machines.world.now)
    record.link = machines.link(1)
    message = machines.message(1, machines.link(2))
    message.staged = staged
    message.acked_us = machines.world.now
    machines.wait(SECOND)
    if back_us:
        machines.run(3, up=True)
        machines.wait(back_us)
    record.link.cut_us = machines.world.now
    assert machines.judge(majority=True).lost_with_its_session(record, message, None) == excused


@pytest.mark.parametrize(("majority", "excused"), [(False, True), (True, False)])
def test_two_sides_excuse_where_both_may_serve(majority: bool, excused: bool) -> None:
    machines = Machines()
    judge = machines.judge(majority=majority)
    first = machines.message(1, machines.link(1))
    machines.cut(("n1", "n2"), ("n1", "n3"))
    machines.wait(2 * FORK_US)
    second = machines.message(1, machines.link(2))
    record = SessionRecord(0, "c", V5, 10, machines.world.now)
    assert judge.out_of_order(record, second, first) == excused
    assert share_of("A3", judge.judged, judge.excused) == ((0, 1) if excused else (1, 0))


@pytest.mark.parametrize("heals", [False, True])
def test_a_machine_that_goes_over_between_two_messages_excuses_their_order(heals: bool) -> None:
    """What it took first is known on the other side after the merge only."""
    machines = Machines(4)
    judge = machines.judge()
    machines.cut(("n1", "n3"), ("n1", "n4"), ("n2", "n3"), ("n2", "n4"))
    machines.wait(2 * FORK_US)
    first = machines.message(1, machines.link(2))
    machines.wait(SECOND)
    if heals:
        machines.cut(("n1", "n3"), ("n1", "n4"), ("n1", "n2"))
    machines.wait(SECOND)
    second = machines.message(1, machines.link(2))
    assert judge.out_of_order(None, first, second) == heals


def test_a_split_of_other_machines_excuses_nothing() -> None:
    machines = Machines(5)
    judge = machines.judge()
    machines.cut(("n1", "n2"), ("n1", "n3"), ("n1", "n4"), ("n1", "n5"))
    machines.wait(2 * FORK_US)
    first = machines.message(1, machines.link(2))
    second = machines.message(1, machines.link(3))
    record = SessionRecord(0, "c", V5, 10, machines.world.now)
    record.links.append(machines.link(4))
    assert not judge.out_of_order(record, second, first)
    assert not judge.delivered_twice(record, second)


@pytest.mark.parametrize(("number", "lacks"), [(3, True), (2, False)])
def test_a_side_that_lacks_a_message_takes_its_successor(number: int, lacks: bool) -> None:
    """The message is taken while one of three nodes is away; then the others fail, and one node goes on alone."""
    machines = Machines()
    judge = machines.judge()
    machines.run(3, up=False)
    machines.wait(SECOND)
    message = machines.message(1, machines.link(1))
    message.acked_us = machines.world.now
    machines.wait(SECOND)
    machines.run(1, up=False)
    machines.run(2, up=False)
    machines.wait(SECOND)
    machines.run(number, up=True)
    later = machines.message(1, machines.link(number))
    assert judge._is_unaware(later, message.first_us, message.acked_us) == lacks
    assert judge.out_of_order(None, message, later) or not lacks


@pytest.mark.parametrize(
    ("number", "majority", "lacks"), [(3, False, True), (3, True, False), (2, False, False), (1, False, False)]
)
def test_a_side_lacks_a_session_that_began_while_its_nodes_were_away(number: int, majority: bool, lacks: bool) -> None:
    """The session begins while one of three nodes is away; then the others fail, and one node goes on alone."""
    machines = Machines()
    judge = machines.judge(majority=majority)
    machines.run(3, up=False)
    machines.wait(SECOND)
    record = SessionRecord(0, "c", V5, 10, machines.world.now)
    record.links.append(machines.link(1))
    machines.wait(SECOND)
    machines.run(1, up=False)
    machines.run(2, up=False)
    machines.wait(SECOND)
    machines.run(number, up=True)
    machines.wait(SECOND)
    assert judge.without_copy(record, Life("c", V5, machines.link(number), False, machines.world.now)) == lacks


@pytest.mark.parametrize(
    ("expiry_s", "numbers", "forks", "majority", "expired"),
    [
        (4, [3, 2], True, False, True),
        (4, [3, 3, 2], True, False, True),
        (4, [3, 2], True, True, False),
        (4, [3, 2], False, False, False),
        (4, [3, 3], True, False, False),  # this side has seen the client come back
        (4, [3, 1, 2], True, False, False),  # and this one
        (30, [3, 2], True, False, False),  # it cannot have expired yet
        (NEVER_EXPIRES_S, [3, 2], True, False, False),
    ],
)
def test_a_side_that_does_not_see_its_client_come_back_lets_a_session_expire(
    expiry_s: int, numbers: list[int], forks: bool, majority: bool, expired: bool
) -> None:
    """The client comes back on the other side, and its session never expires there. Then it comes to this side."""
    machines = Machines()
    lives = [machines.life(1, expiry_s)]
    machines.wait(SECOND)
    lives[0].link.cut_us = machines.world.now
    machines.wait(SECOND)
    if forks:
        machines.cut(("n1", "n3"), ("n2", "n3"))
    for number in numbers:
        machines.wait(2 * SECOND)
        lives.append(machines.life(number, NEVER_EXPIRES_S))
    machines.cut()
    machines.wait(SECOND)
    assert machines.judge(majority=majority).is_unknown_there(lives[:-1], lives[-1], 0) == expired


def test_a_session_that_never_expires_again_before_a_split_does_not_expire() -> None:
    machines = Machines()
    lives = [machines.life(1, 1)]
    lives[0].link.cut_us = machines.world.now
    lives.append(machines.life(3, NEVER_EXPIRES_S))
    machines.wait(SECOND)
    machines.cut(("n1", "n3"), ("n2", "n3"))
    machines.wait(5 * SECOND)
    assert not machines.judge().is_unknown_there(lives, machines.life(2, NEVER_EXPIRES_S), 0)


@pytest.mark.parametrize(
    ("numbers", "forks", "majority", "unknown"),
    [
        ([3, 2], True, False, True),
        ([3, 3, 1], True, False, True),
        ([3, 1, 2], True, False, False),  # this side has seen it since
        ([3, 3], True, False, False),
        ([3, 2], False, False, False),
        ([3, 2], True, True, False),
    ],
)
def test_a_session_that_began_on_another_side_is_not_known_before_the_merge(
    numbers: list[int], forks: bool, majority: bool, unknown: bool
) -> None:
    machines = Machines()
    if forks:
        machines.cut(("n1", "n3"), ("n2", "n3"))
    lives: list[Life] = []
    for number in numbers:
        machines.wait(2 * FORK_US)
        lives.append(machines.life(number, NEVER_EXPIRES_S))
    assert machines.judge(majority=majority).is_unknown_there(lives[:-1], lives[-1], 0) == unknown


@pytest.mark.parametrize(("heals", "unknown"), [(True, True), (False, False)])
def test_of_two_nodes_of_a_side_one_may_go_over_before_the_other(heals: bool, unknown: bool) -> None:
    """The session begins at the node that is still of the side of few, and is asked for at the other one."""
    machines = Machines(4)
    machines.cut(("n1", "n3"), ("n2", "n3"), ("n1", "n4"), ("n2", "n4"))
    machines.wait(2 * FORK_US)
    if heals:
        machines.cut()
    lives = [machines.life(3, NEVER_EXPIRES_S)]
    machines.wait(SECOND // 2)
    life = machines.life(4, NEVER_EXPIRES_S)
    assert machines.judge().is_unknown_there(lives, life, 0) == unknown
    machines.wait(2 * HEAL_US)
    lives.append(machines.life(3, NEVER_EXPIRES_S))
    life = machines.life(4, NEVER_EXPIRES_S)
    assert not machines.judge().is_unknown_there(lives, life, 0), "they have been together for long"


@pytest.mark.parametrize(("began_s", "expired"), [(1, True), (4, False)])
def test_a_client_that_a_side_does_not_see_counts_as_absent_there_since_the_split(began_s: int, expired: bool) -> None:
    """It is connected with a finite expiry, and connects again, on its own side, before the other side is asked."""
    machines = Machines()
    lives = [machines.life(3, 4)]
    machines.wait(began_s * SECOND)
    machines.cut(("n1", "n3"), ("n2", "n3"))
    machines.wait(5 * SECOND - began_s * SECOND)
    lives.append(machines.life(3, NEVER_EXPIRES_S))
    lives[0].link.cut_us = machines.world.now
    machines.wait(SECOND // 2)
    assert machines.judge().is_unknown_there(lives, machines.life(2, NEVER_EXPIRES_S), 0) == expired


@pytest.mark.parametrize(("one_way", "early"), [([("n2", "n1")], True), ([("n1", "n3")], False)])
def test_a_will_is_not_early_when_others_do_not_hear_its_node(one_way: list[tuple[str, str]], early: bool) -> None:
    """For less time than it takes two sides to begin: a lease is shorter."""
    machines = Machines()
    judge = machines.judge(majority=True)
    life = Life("c", V5, machines.link(2), False, machines.world.now)
    machines.wait(SECOND)
    machines.cuts = set(one_way)
    machines.history.look()
    machines.wait(FORK_US // 2)
    assert judge.will_early(life, machines.world.now) == early
    machines.cut()
    machines.wait(10 * SECOND)
    assert not judge.will_early(life, machines.world.now), "that is long over"
    life.will_delay_s = 5
    assert judge.will_early(life, machines.world.now) == early


@pytest.mark.parametrize(
    ("case", "excused"),
    [
        ("n3 alone", True),
        ("n3 beside n2, which lost its disk", True),
        ("majority", False),
        ("n2 alone", False),
        ("n3 beside n2", False),
        ("n3 alone, which was back before", False),
        ("n3 alone, which was back too briefly", True),
        ("n3 alone, which was away before", False),
        ("n3 alone, briefly", False),
    ],
)
def test_a_side_of_nodes_that_were_away_does_not_know_that_a_will_was_withdrawn(case: str, excused: bool) -> None:
    """The will is withdrawn while one of three nodes is away; then all fail, and some go on without the others."""
    machines = Machines()
    judge = machines.judge(majority=case == "majority")
    if "away before" in case:
        machines.run(3, up=False)
        machines.wait(SECOND)
    life = Life("c", V5, machines.link(1), False, machines.world.now)
    machines.wait(SECOND)
    machines.run(3, up=False)
    machines.wait(SECOND)
    since = machines.world.now
    machines.wait(SECOND // 10)
    until = machines.world.now
    machines.wait(SECOND)
    if "was back" in case:
        machines.run(3, up=True)
        machines.wait(SECOND if "briefly" in case else HEAL_US)
    for number in (1, 2, 3):
        machines.run(number, up=False)
    machines.wait(SECOND)
    if "lost its disk" in case:
        machines.hosts[1].emptied_us.append(machines.world.now)
    machines.wait(SECOND)
    assert not judge.withdrawal_unknown(life, since, until), "nobody has gone on"
    if "n2" in case:
        machines.run(2, up=True)
    if "n2 alone" not in case:
        machines.run(3, up=True)
    machines.wait(FORK_US // 2 if case == "n3 alone, briefly" else FORK_US)
    assert judge.withdrawal_unknown(life, since, until) == excused
    for number in (1, 2, 3):
        machines.run(number, up=True)
    machines.wait(SECOND)
    assert judge.withdrawal_unknown(life, since, until) == excused


@pytest.mark.parametrize(
    ("will", "forks", "majority", "excused"),
    [
        (False, True, False, True),
        (True, True, False, True),
        (True, True, True, False),
        (True, False, False, False),
    ],
)
def test_a_side_that_does_not_know_of_a_new_session_takes_messages_and_wills_for_the_earlier_one(
    will: bool, forks: bool, majority: bool, excused: bool
) -> None:
    machines = Machines()
    earlier = SessionRecord(0, "c", V5, 10, machines.world.now)
    earlier.links.append(machines.link(1))
    machines.wait(SECOND)
    message = machines.message(2) if will else machines.message(2, machines.link(3))
    if will:
        message.is_will, message.will_link = True, machines.link(3)
    machines.wait(SECOND)
    if forks:
        machines.cut(("n1", "n3"), ("n2", "n3"))
    machines.wait(2 * FORK_US)
    machines.cut()
    machines.wait(SECOND)
    record = SessionRecord(1, "c", V5, 10, machines.world.now)
    assert machines.judge(majority=majority).of_earlier_session(record, message, [earlier]) == excused
    machines.wait(2 * HEAL_US)
    record = SessionRecord(2, "c", V5, 10, machines.world.now)
    assert not machines.judge(majority=majority).of_earlier_session(record, message, [earlier]), "all know of it"


@pytest.mark.parametrize(
    ("qos", "identifier", "forks", "violations"),
    [(2, 7, True, 0), (1, 0, True, 0), (1, 7, True, 1), (2, 8, True, 2), (0, 0, True, 1), (2, 7, False, 2)],
)
def test_a_message_for_an_earlier_session_comes_as_that_one_asked(
    qos: int, identifier: int, forks: bool, violations: int
) -> None:
    """The earlier session has other options and another identifier, and the new one has subscribed, too."""
    machines = Machines()
    trouble: Any = None
    ledger = Ledger(machines.world, machines.hosts, trouble, machines.judge())
    checker = DeliveryChecker(ledger)
    records: list[SessionRecord] = []
    for name, options, known in [(b"t", 2, 7), (b"+", 1, 0)]:
        life = Life("c", V5, machines.link(1), True, machines.world.now)
        ledger.connecting(life)
        record = ledger.begin(life, 10)
        record.links.append(life.link)
        record.every.append(Sub(name, options, known, machines.world.now))
        records.append(record)
    message = ledger.publish("a", Publish(b"t", b"m", 2), once=True)
    ledger.sent(message, machines.link(3))
    if forks:
        machines.cut(("n1", "n3"), ("n2", "n3"))
    machines.wait(2 * FORK_US)
    packet = Publish(b"t", b"m", qos)
    packet.properties = Properties()
    packet.properties.subscription_ids = [identifier] if identifier else []
    checker.received(records[1], machines.link(1), packet, late=False)
    assert len(machines.world.violations) == violations


@pytest.mark.parametrize(
    ("asked", "qos", "forks", "violations"),
    [(b"t", 2, True, 0), (b"t", 1, True, 0), (b"t", 2, False, 1), (b"t", 0, True, 1), (b"u", 2, True, 1)],
)
def test_a_message_that_clears_comes_for_an_earlier_session_too(
    asked: bytes, qos: int, forks: bool, violations: int
) -> None:
    machines = Machines()
    trouble: Any = None
    ledger = Ledger(machines.world, machines.hosts, trouble, machines.judge())
    checker = DeliveryChecker(ledger)
    records: list[SessionRecord] = []
    for _ in range(2):
        life = Life("c", V5, machines.link(1), True, machines.world.now)
        ledger.connecting(life)
        records.append(ledger.begin(life, 10))
        records[-1].links.append(life.link)
    records[0].every.append(Sub(asked, 2, 0, machines.world.now))
    for published in (1, 2):
        message = ledger.publish("a", Publish(b"t", b"", published, retain=True), once=True)
        ledger.sent(message, machines.link(3))
    if forks:
        machines.cut(("n1", "n3"), ("n2", "n3"))
    machines.wait(2 * FORK_US)
    packet = Publish(b"t", b"", qos)
    packet.properties = Properties()
    checker.received(records[1], machines.link(1), packet, late=False)
    assert len(machines.world.violations) == violations


@pytest.mark.parametrize(
    ("split_s", "made_on", "majority", "excused"),
    [
        (0, 1, False, False),
        (0, 1, True, False),
        (5, 1, False, False),  # made before the split, both sides know it
        (-5, 1, False, True),  # made in the split
        (-5, 2, False, False),  # on the side that takes the message
        (-5, 1, True, False),
    ],
)
def test_a_subscription_that_was_made_before_a_split_is_known_as_it_is(
    split_s: int, made_on: int, majority: bool, excused: bool
) -> None:
    machines = Machines()
    if split_s < 0:
        machines.cut(("n1", "n3"), ("n1", "n2"))
        machines.wait(-split_s * SECOND)
    record = SessionRecord(0, "c", V5, NEVER_EXPIRES_S, machines.world.now)
    record.links.append(machines.link(made_on))
    sub = Sub(b"t", 1, 0, machines.world.now)
    sub.since_us = machines.world.now
    sub.link = record.links[0]
    record.every.append(sub)
    machines.wait(2 * SECOND)
    if split_s > 0:
        machines.cut(("n1", "n3"), ("n1", "n2"))
        machines.wait(split_s * SECOND)
    message = machines.message(1, machines.link(2))
    message.acked_us = machines.world.now
    assert machines.judge(majority=majority).matched_otherwise(record, message) == excused


@pytest.mark.parametrize(
    ("fallen", "before_s", "qos", "falls"),
    [
        ((), 0, 0, 0),
        ((3,), 0, 0, 1),
        ((3,), 0, 1, 0),  # the next leader goes on with those
        ((3,), 1, 0, 0),  # before it was asked for
        ((1, 2), 0, 1, 2),  # both copies of a partition
    ],
)
def test_retained_messages_come_again_if_a_leader_falls_after_they_were_asked_for(
    fallen: tuple[int, ...], before_s: int, qos: int, falls: int
) -> None:
    machines = Machines(copies=2)
    machines.wait(SECOND)
    asked_us = machines.world.now
    if before_s:
        asked_us += before_s * SECOND
    for number in fallen:
        machines.run(number, up=False)
    machines.wait(2 * SECOND)
    assert machines.judge().repeats_scan(asked_us, qos) == falls


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize(
    ("forks", "majority", "excused"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_a_subscription_that_was_taken_back_may_still_be_there_on_another_side(
    forks: bool, majority: bool, excused: bool, answered: bool
) -> None:
    """UNSUBSCRIBE may have been sent before SUBACK came."""
    machines = Machines()
    record = SessionRecord(0, "c", V5, NEVER_EXPIRES_S, machines.world.now)
    record.links.append(machines.link(1))
    sub = Sub(b"t", 1, 0, machines.world.now)
    sub.link = record.links[0] if answered else None
    record.every.append(sub)
    if forks:
        machines.cut(("n1", "n3"), ("n1", "n2"))
    machines.wait(2 * FORK_US)
    sub.until_us = sub.gone_us = machines.world.now
    machines.cut()
    machines.wait(HEAL_US // 2)
    message = machines.message(1, machines.link(2))
    message.acked_us = machines.world.now
    assert machines.judge(majority=majority).matched_otherwise(record, message) == excused


@pytest.mark.parametrize(
    ("left_early", "emptied", "back", "majority", "twice"),
    [
        (False, True, [3], False, True),
        (False, True, [3], True, False),
        (True, True, [3], False, False),  # the third node was still there
        (False, False, [3], False, False),  # the node of the first connection has its copy
        (False, True, [2, 3], False, False),  # so has the other one that went on
    ],
)
def test_a_machine_that_has_lost_its_disk_does_not_stand_for_its_node(
    left_early: bool, emptied: bool, back: list[int], majority: bool, twice: bool
) -> None:
    """The client is connected while one of three nodes is away. Then the others fail, and one has an empty disk."""
    machines = Machines()
    judge = machines.judge(majority=majority)
    record = SessionRecord(0, "c", V5, NEVER_EXPIRES_S, machines.world.now)
    message = machines.message(2, machines.link(1))
    link = machines.link(1)
    record.links.append(link)
    machines.wait(SECOND)
    left_us = machines.world.now
    machines.wait(SECOND)
    machines.run(3, up=False)
    machines.wait(SECOND)
    link.cut_us = link.ended_us = left_us if left_early else machines.world.now
    for number in (1, 2):
        machines.run(number, up=False)
    if emptied:
        machines.hosts[0].blank = True
        machines.hosts[0].emptied_us.append(machines.world.now)
    machines.wait(FORK_US // 4)
    for number in (1, *back):
        machines.run(number, up=True)
    machines.wait(4 * SECOND)
    assert not judge.delivered_twice(record, message), "it has not come again"
    record.links.append(machines.link(3))
    assert judge.delivered_twice(record, message) == twice
    assert judge.replayed_elsewhere(record) == twice
    assert share_of("A4", judge.judged, judge.excused) == ((1, 1) if twice else (2, 0))


@pytest.mark.parametrize(
    ("before", "at", "merged", "after", "unknown"),
    [
        ("12 13", 2, False, "12 13 24 34", True),  # it joins the other side
        ("12 13", 2, False, "12 13", True),  # it reaches both sides
        ("12", 2, False, "12", True),  # so does n3, which may be of the other one
        ("12", 3, False, "12", True),  # also where the client is there
        ("12 13", 2, False, "", True),  # the sides reach each other again, and have not merged yet
        ("12 13", 2, True, "", False),
        ("12 13", 2, True, "12 13 24 34", False),  # the other side had learned of the subscription
        ("12 13", 2, False, "12 13 14", False),  # it joins the side of the subscription
        ("", 2, False, "12 13 24 34", False),  # that was made before the split
        ("15 25 35 45", 2, False, "15 25 35 45", False),  # it reaches no machine of the other side
    ],
)
@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("majority", [False, True])
def test_a_machine_that_comes_up_knows_of_the_subscriptions_of_its_side(
    before: str, at: int, merged: bool, after: str, unknown: bool, is_back: bool, majority: bool
) -> None:
    """A client subscribes while links are cut. Then n4 comes up, for the first time or again, and takes a message."""
    machines = Machines(5 if "5" in before else 4)
    judge = machines.judge(majority=majority)
    newcomer = machines.hosts[3]
    if not is_back:
        newcomer.member = False
        newcomer.starts_us.clear()
    machines.run(4, up=False)

    def cut(links: str) -> None:
        machines.cut(*[("n" + link[0], "n" + link[1]) for link in links.split()])

    cut(before)
    machines.wait(4 * SECOND)
    record = SessionRecord(0, "c", V5, NEVER_EXPIRES_S, machines.world.now)
    sub = Sub(b"t", 1, 0, machines.world.now)
    sub.link = machines.link(at)
    machines.wait(SECOND // 10)
    sub.since_us = machines.world.now
    machines.wait(4 * SECOND)
    if merged:
        machines.cut()
        machines.wait(2 * HEAL_US)
    cut(after)
    newcomer.starts_us.append(machines.world.now)
    newcomer.member = True
    machines.run(4, up=True)
    machines.wait(4 * SECOND)
    message = machines.message(1, machines.link(4))
    message.acked_us = machines.world.now
    machines.wait(SECOND)
    excused = unknown and not majority
    assert judge.unknown_there(record, sub, message) == excused
    assert share_of("A1", judge.judged, judge.excused) == ((0, 1) if excused else (1, 0))


@pytest.mark.parametrize(("number", "unknown"), [(4, False), (1, True)])
def test_a_machine_of_the_side_of_a_subscription_knows_of_it_also_between_two_sides(number: int, unknown: bool) -> None:
    """n1 is cut off while the client subscribes; then n4, which was there, reaches it as well as the others."""
    machines = Machines(4)
    judge = machines.judge()
    machines.cut(("n1", "n2"), ("n1", "n3"), ("n1", "n4"))
    machines.wait(4 * SECOND)
    sub = Sub(b"t", 1, 0, machines.world.now)
    sub.link, sub.since_us = machines.link(2), machines.world.now
    machines.wait(4 * SECOND)
    machines.cut(("n1", "n2"), ("n1", "n3"))
    machines.wait(4 * SECOND)
    message = machines.message(1, machines.link(number))
    message.acked_us = machines.world.now
    machines.wait(SECOND)
    assert judge.unknown_there(SessionRecord(0, "c", V5, NEVER_EXPIRES_S, 0), sub, message) == unknown


@pytest.mark.parametrize(
    ("expiry_s", "numbers", "taken", "forks", "majority", "excused"),
    [
        (2, [3], 1, True, False, True),
        (2, [3, 3], 2, True, False, True),
        (2, [3], 1, True, True, False),
        (2, [3], 1, False, False, False),
        (2, [3], 3, True, False, False),  # taken where the client came back
        (2, [3, 1], 1, True, False, False),  # this side has seen the client come back
        (2, [2], 1, True, False, False),
        (60, [3], 1, True, False, False),  # it cannot have expired yet
        (NEVER_EXPIRES_S, [3], 1, True, False, False),
    ],
)
def test_a_side_that_does_not_see_its_client_come_back_takes_messages_without_its_session(
    expiry_s: int, numbers: list[int], taken: int, forks: bool, majority: bool, excused: bool
) -> None:
    """The client comes back on another side in time, and its session never expires there. Then the sides meet."""
    machines = Machines()
    judge = machines.judge(majority=majority)
    record = SessionRecord(0, "c", V5, NEVER_EXPIRES_S, machines.world.now)
    sub = Sub(b"t", 1, 0, machines.world.now)
    record.lives.append(machines.life(1, expiry_s))
    sub.link, sub.since_us = record.lives[0].link, machines.world.now
    machines.wait(2 * SECOND)
    if forks:
        machines.cut(("n1", "n3"), ("n2", "n3"))
    machines.wait(2 * FORK_US)
    record.lives[0].link.cut_us = machines.world.now
    for number in numbers:
        machines.wait(SECOND)
        record.lives.append(machines.life(number, NEVER_EXPIRES_S))
    record.links = [life.link for life in record.lives]
    machines.wait(3 * SECOND)
    message = machines.message(1, machines.link(taken))
    message.acked_us = machines.world.now
    machines.cut()
    machines.wait(2 * HEAL_US)
    record.lives.append(machines.life(1, NEVER_EXPIRES_S))
    assert judge.unknown_there(record, sub, message) == excused
    if taken < 3:  # else it counts as taken where no member has subscribed
        assert judge.group_missed(message, [(record, sub)]) == excused


@pytest.mark.parametrize(
    ("lapsed", "forked", "before", "excused"),
    [
        (True, True, True, True),
        (False, True, True, False),
        (True, False, True, False),
        (True, True, False, False),
    ],
)
def test_what_waited_for_a_session_that_had_expired_may_be_gone(
    lapsed: bool, forked: bool, before: bool, excused: bool
) -> None:
    """Its client comes back after the expiry, to a fork with an older copy. before: the message came earlier."""
    machines = Machines()
    judge = machines.judge()
    record = SessionRecord(0, "c", V5, 3, machines.world.now)
    record.links = [machines.link(1)]
    sub = Sub(b"t", 1, 0, machines.world.now)
    sub.link, sub.since_us = record.links[0], machines.world.now
    machines.wait(SECOND)
    if forked:
        machines.cut(("n1", "n2"), ("n1", "n3"))
    machines.wait(2 * FORK_US)
    messages = [machines.message(1, machines.link(1))]
    machines.wait(SECOND)
    if lapsed:
        record.lapsed_us = machines.world.now
    record.links.append(machines.link(1))
    messages.append(machines.message(1, machines.link(1)))
    for message in messages:
        message.acked_us = machines.world.now
    machines.wait(SECOND)
    assert judge.unknown_there(record, sub, messages[0 if before else 1]) == excused


@pytest.mark.parametrize(
    ("cut", "majority", "excused"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_messages_that_were_taken_by_two_sides_come_in_any_order(cut: bool, majority: bool, excused: bool) -> None:
    """The earlier one at the side where the subscriber is connected, and the later one at the other side."""
    machines = Machines()
    judge = machines.judge(majority=majority)
    machines.wait(SECOND)
    if cut:
        machines.cut(("n1", "n2"), ("n1", "n3"))
    machines.wait(2 * FORK_US)
    earlier = machines.message(1, machines.link(2))
    earlier.acked_us = machines.world.now
    machines.wait(2 * FORK_US)
    later = machines.message(1, machines.link(1))
    later.acked_us = machines.world.now
    machines.cut()
    machines.wait(SECOND)
    assert judge.comes_after_heal(earlier, later, machines.link(2)) == excused
    assert not judge.comes_after_heal(earlier, earlier, machines.link(2)), "one side has taken both"


@pytest.mark.parametrize("majority", [False, True])
@pytest.mark.parametrize(("number", "joined"), [(1, True), (3, False)])
def test_a_client_that_begins_anew_on_another_side_has_one_session_later(
    number: int, joined: bool, majority: bool
) -> None:
    machines = Machines()
    judge = machines.judge(majority=majority)
    machines.cut(("n1", "n2"), ("n1", "n3"))
    machines.wait(2 * FORK_US)
    life = machines.life(2, 10)
    machines.wait(2 * FORK_US)
    follower = machines.life(number, 10)
    machines.wait(SECOND)
    assert judge.joined_later(life, follower) == (joined and not majority)


@pytest.mark.parametrize(
    ("was", "unknown"), [("cut off", True), ("cut off and emptied", False), ("down", False), ("there", False)]
)
def test_a_machine_that_comes_up_may_join_one_that_was_on_another_side(was: str, unknown: bool) -> None:
    """That one is n1, which is started again. n4 reaches it, and n3 as well, which knows of the subscription."""
    machines = Machines(4)
    judge = machines.judge()
    newcomer = machines.hosts[3]
    newcomer.member = False
    newcomer.starts_us.clear()
    machines.run(4, up=False)
    machines.cut(*[("n1", "n2"), ("n1", "n3")] if "cut off" in was else [])
    machines.run(1, up=was != "down")
    machines.wait(4 * SECOND)
    sub = Sub(b"t", 1, 0, machines.world.now)
    sub.link, sub.since_us = machines.link(2), machines.world.now
    machines.wait(4 * SECOND)
    machines.run(1, up=False)
    if "emptied" in was:
        machines.hosts[0].emptied_us.append(machines.world.now)
    machines.wait(SECOND)
    machines.cut(("n1", "n2"))
    machines.run(1, up=True)
    newcomer.member = True
    newcomer.starts_us.append(machines.world.now)
    machines.run(4, up=True)
    machines.wait(4 * SECOND)
    message = machines.message(1, machines.link(4))
    message.acked_us = machines.world.now
    machines.wait(SECOND)
    assert judge.unknown_there(SessionRecord(0, "c", V5, NEVER_EXPIRES_S, 0), sub, message) == unknown


@pytest.mark.parametrize(
    ("copies", "away", "unknown"),
    [
        (3, [2], True),  # n3 and n4 were there and need not have a copy, n2 may have an older one
        (4, [2], False),  # one of the two has a copy
        (4, [2, 3], True),
        (5, [2, 3], False),  # all have copies
        (3, [], False),  # nobody has an older one
    ],
)
def test_a_side_goes_on_from_an_older_copy_if_those_that_were_there_have_none(
    copies: int, away: list[int], unknown: bool
) -> None:
    """The client subscribes at n1 while some are away. Then n1 and n5 fall, and the others go on."""
    machines = Machines(5, copies)
    judge = machines.judge()
    machines.wait(SECOND)
    for number in away:
        machines.run(number, up=False)
    machines.wait(SECOND)
    sub = Sub(b"t", 1, 0, machines.world.now)
    sub.link, sub.since_us = machines.link(1), machines.world.now
    machines.wait(SECOND)
    for number in (1, 5):
        machines.run(number, up=False)
    for number in away:
        machines.run(number, up=True)
    machines.wait(4 * SECOND)
    message = machines.message(1, machines.link(4))
    message.acked_us = machines.world.now
    machines.wait(SECOND)
    assert judge.unknown_there(SessionRecord(0, "c", V5, NEVER_EXPIRES_S, 0), sub, message) == unknown


def test_a_session_that_began_before_a_node_was_away_is_known_to_it() -> None:
    machines = Machines()
    record = SessionRecord(0, "c", V5, 10, machines.world.now)
    record.links.append(machines.link(1))
    machines.wait(SECOND)
    for number in (3, 1, 2):
        machines.run(number, up=False)
        machines.wait(SECOND)
    machines.run(3, up=True)
    machines.wait(SECOND)
    assert not machines.judge().without_copy(record, Life("c", V5, machines.link(3), False, machines.world.now))


@pytest.mark.parametrize(("forks", "meets", "majority"), [(1, 0, 0), (0, 0, 0), (1, 1, 0), (1, 0, 1)])
def test_a_machine_that_falls_and_forks_as_it_comes_up_may_have_stored_a_message(
    forks: bool, meets: bool, majority: bool
) -> None:
    machines = Machines()
    judge = machines.judge(majority=majority)
    message = machines.message(2, machines.link(1))
    machines.run(3, up=False)
    machines.wait(SECOND)
    message.acked_us = machines.world.now
    machines.wait(SECOND)
    if forks and not meets:
        machines.cut(("n1", "n3"), ("n2", "n3"))
    machines.run(3, up=True)
    machines.wait(2 * FORK_US)
    if forks and meets:
        machines.cut(("n1", "n3"), ("n2", "n3"))
        machines.wait(2 * FORK_US)
    condition = ("A9", "being stored at a node that went down, and came back as a side")
    assert judge.stored_twice(message) == (forks and not meets and not majority)
    assert judge.excused.get(condition, 0) == (forks and not meets and not majority)


@pytest.mark.parametrize(
    ("qos", "majority", "cut", "twice"),
    [(2, False, True, True), (1, False, True, False), (2, True, True, False), (2, False, False, False)],
)
def test_an_acknowledged_message_of_qos_2_may_wait_for_a_partition_until_sides_part(
    qos: int, majority: bool, cut: bool, twice: bool
) -> None:
    """Its node does not reach all others when it takes the message, and is of another side later."""
    machines = Machines(4)
    if cut:
        machines.cut(("n1", "n4"))
    machines.wait(SECOND // 4)
    message = machines.message(qos, machines.link(1))
    machines.wait(SECOND // 4)
    message.acked_us = machines.world.now
    machines.wait(2 * FORK_US)
    other = machines.message(1, machines.link(1))
    assert machines.judge(majority=majority).ordered(message, [other]) == ([] if twice else [other])


@pytest.mark.parametrize(
    ("links", "after_us", "majority", "twice"),
    [
        (["n1 n2", "n2 n3", "n3 n4"], 2 * SECOND, False, True),
        (["n1 n2", "n2 n3", "n3 n4"], 4 * SECOND, False, False),
        (["n1 n2", "n2 n3", "n3 n4"], 2 * SECOND, True, False),
        (["n1 n2", "n3 n4"], 2 * SECOND, False, False),
    ],
)
def test_a_leader_between_two_sides_may_store_a_message_with_both_until_nodes_notice(
    links: list[str], after_us: int, majority: bool, twice: bool
) -> None:
    """Its publisher is at the end of a chain; the leader goes on with a copy that its publisher's node does not reach.

    In a split into two sides, the leader has lost all copies of the other side before the message comes.
    """
    machines = Machines(4)
    machines.wait(SECOND)
    pairs = [("n1", "n2"), ("n1", "n3"), ("n1", "n4"), ("n2", "n3"), ("n2", "n4"), ("n3", "n4")]
    machines.cut(*[(one, two) for one, two in pairs if f"{one} {two}" not in links])
    machines.wait(after_us)
    message = machines.message(2, machines.link(4))
    machines.wait(SECOND)
    message.acked_us = machines.world.now
    machines.wait(2 * FORK_US)
    assert machines.judge(majority=majority).stored_twice(message) == twice


@pytest.mark.parametrize(
    ("cuts", "again_us", "after_us", "twice"),
    [
        ([("n2", "n1"), ("n3", "n2")], NEVER, 2 * SECOND, True),
        ([("n2", "n1"), ("n3", "n2")], NEVER, 4 * SECOND, False),
        ([("n2", "n1"), ("n3", "n2"), ("n1", "n2")], NEVER, 2 * SECOND, False),
        ([("n2", "n1"), ("n3", "n2"), ("n1", "n2")], SECOND, 2 * SECOND, True),
        ([("n2", "n1"), ("n3", "n2"), ("n1", "n2")], 4 * SECOND, 2 * SECOND, False),
    ],
)
def test_a_leader_that_is_heard_by_another_side_may_store_a_message_there(
    cuts: list[tuple[str, str]], again_us: int, after_us: int, twice: bool
) -> None:
    """The publisher is at n3, which n2 does not hear; n2 hears n1, which leads what it sends: always, or later."""
    machines = Machines()
    machines.wait(SECOND)
    machines.cuts = set(cuts)
    machines.history.look()
    machines.wait(after_us)
    message = machines.message(2, machines.link(3))
    if again_us < NEVER:
        machines.wait(again_us)
        machines.cuts.discard(("n1", "n2"))
        machines.history.look()
    machines.wait(SECOND)
    message.acked_us = machines.world.now
    machines.wait(2 * FORK_US)
    assert machines.judge().stored_twice(message) == twice


@pytest.mark.parametrize(("majority", "forks"), [(False, True), (True, True), (False, False)])
def test_a_message_of_a_transaction_may_be_published_by_two_sides(majority: bool, forks: bool) -> None:
    machines = Machines()
    message = Message(0, "$transaction/app", Publish(b"t", b"m", 0))
    assert message.staged
    if forks:
        machines.cut(("n1", "n3"), ("n2", "n3"))
    machines.wait(2 * FORK_US)
    assert machines.judge(majority=majority).stored_twice(message) == (forks and not majority)


def test_a_split_begins_while_an_earlier_one_counts_as_being_healed() -> None:
    machines = Machines()
    for _ in range(2):
        machines.cut(("n1", "n2"), ("n1", "n3"))
        machines.wait(2 * FORK_US)
        began_us = machines.world.now - 2 * FORK_US
        assert machines.history.parted("n1", began_us - SECOND, began_us + SECOND)
        machines.cut()
        machines.wait(HEAL_US // 2)


def test_every_entry_is_documented() -> None:
    anchors = {
        "limits.md#" + re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", (DOCS / "limits.md").read_text(encoding="utf-8"), re.MULTILINE)
    }
    lost = [entry.where for entry in EXCUSES if entry.where.startswith("limits.md") and entry.where not in anchors]
    assert lost == []


def test_no_condition_is_named_twice() -> None:
    names = [(entry.promise, entry.condition) for entry in EXCUSES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("majority", "judged", "excused", "seldom"),
    [
        (True, 95, 5, []),
        (True, 94, 6, ["A3"]),
        (False, 94, 6, []),
        (False, 79, 21, ["A3"]),
        (True, 1, 9, []),  # ten cases say nothing
    ],
)
def test_a_promise_that_is_seldom_judged_is_a_failure(
    majority: bool, judged: int, excused: int, seldom: list[str]
) -> None:
    assert too_seldom(majority, {"A3": judged}, {("A3", "messages of two sides"): excused}) == seldom


@pytest.mark.parametrize(
    ("parted", "ends", "copies", "violations"),
    [
        ("while connected", "lost", 0, 1),  # it is published at least once, whatever sides there were
        ("while connected", "lost", 1, 0),
        ("while connected", "lost", 2, 0),
        ("before", "lost", 2, 1),  # the other side did not know of this connection
        ("while connected", "lives", 1, 0),
        ("before", "lives", 1, 1),
        ("while connected", "goodbye", 1, 0),
        ("after", "goodbye", 1, 1),
    ],
)
def test_a_will_is_excused_by_a_side_that_has_lost_its_client_only(
    parted: str, ends: str, copies: int, violations: int
) -> None:
    """The client is connected to n1, and the watcher with its persistent session is there as well."""
    machines = Machines()
    trouble: Any = SimpleNamespace(alone=False)
    ledger = Ledger(machines.world, machines.hosts, trouble, machines.judge())
    watcher = ledger.begin(machines.life(1, NEVER_EXPIRES_S), NEVER_EXPIRES_S)
    checker = WillChecker(ledger, [watcher.client_id])

    def part() -> None:
        machines.cut(("n1", "n2"), ("n1", "n3"))

    if parted == "before":
        part()
    machines.wait(2 * HEAL_US)
    life = Life("mortal", V5, machines.link(1), True, machines.world.now)
    life.link.name, life.link.read_bytes = "link1", 10
    life.accepted_us = machines.world.now
    life.will = ledger.publish("mortal", Publish(b"will", b"w", 2), once=True)
    ledger.connecting(life)
    machines.wait(SECOND)
    if parted == "while connected":
        part()
    machines.wait(2 * HEAL_US)
    if ends == "goodbye":
        life.goodbye_us = machines.world.now
    if ends != "lives":
        life.link.cut_us = life.link.ended_us = machines.world.now
    machines.wait(2 * HEAL_US)
    if parted == "after":
        part()
    machines.wait(2 * HEAL_US)
    life.will.received_us = machines.world.now
    watcher.copies[life.will.number] = copies
    checker.finish()
    assert len(machines.world.violations) == violations, machines.world.violations


@pytest.mark.parametrize(
    ("after_us", "members", "outcome"),
    [
        (0, 3, MAYBE),  # the connection ended by this
        (SECOND // 2, 3, MAYBE),
        (2 * SECOND, 3, YES),  # the delay was over
        (0, 2, YES),  # only one that does not belong to the cluster fails
    ],
)
def test_the_delay_of_a_will_starts_again_when_machines_start_in_the_moment_in_which_they_fail(
    after_us: int, members: int, outcome: str
) -> None:
    """They do not lead at once: the client, whose will has a delay of a second, is back before it is over again."""
    machines = Machines()
    trouble: Any = SimpleNamespace(alone=False)
    ledger = Ledger(machines.world, machines.hosts, trouble, machines.judge())

    def connect() -> Life:
        life = machines.life(1, NEVER_EXPIRES_S)
        life.link.read_bytes, life.expiry_high_s, life.resumed = 0, NEVER_EXPIRES_S, True
        ledger.connecting(life)
        return life

    machines.hosts[2].member = members == 3
    life = connect()
    life.will = ledger.publish("c", Publish(b"will", b"w", 2), once=True)
    life.will_delay_s = 1
    machines.wait(SECOND)
    life.link.cut_us = life.link.ended_us = machines.world.now
    machines.wait(after_us)
    failing = (1, 2, 3) if members == 3 else (3,)
    for up in (False, True):
        for number in failing:
            machines.run(number, up=up)
    machines.wait(3 * SECOND)
    connect()
    machines.wait(2 * HEAL_US)
    assert WillChecker(ledger, []).outcome(life) == outcome


@pytest.mark.parametrize(("told", "outcome"), [(True, "maybe"), (False, "yes")])
def test_the_delay_of_a_will_starts_again_where_a_member_that_leaves_hands_over(told: bool, outcome: str) -> None:
    """It has gone three seconds after the end of the connection; the client is back before the delay is over again."""
    machines = Machines()
    trouble: Any = SimpleNamespace(alone=False)
    ledger = Ledger(machines.world, machines.hosts, trouble, machines.judge())
    life = machines.life(1, NEVER_EXPIRES_S)
    life.link.read_bytes, life.expiry_high_s, life.resumed = 0, NEVER_EXPIRES_S, True
    ledger.connecting(life)
    life.will = ledger.publish("c", Publish(b"will", b"w", 2), once=True)
    life.will_delay_s = 2
    machines.wait(SECOND)
    life.link.cut_us = life.link.ended_us = machines.world.now
    if told:
        machines.hosts[2].leaves_us.append(machines.world.now + SECOND)
        machines.hosts[2].stops_us.append(machines.world.now + 3 * SECOND)
    machines.wait(4 * SECOND)
    again = machines.life(1, NEVER_EXPIRES_S)
    again.link.read_bytes, again.expiry_high_s, again.resumed = 0, NEVER_EXPIRES_S, True
    ledger.connecting(again)
    machines.wait(2 * HEAL_US)
    assert WillChecker(ledger, []).outcome(life) == outcome


@pytest.mark.parametrize("number", [2, 3])
def test_the_will_of_a_client_of_a_node_that_is_put_out_may_come_while_it_is_connected(number: int) -> None:
    machines = Machines()
    life: Any = SimpleNamespace(link=machines.link(3), connect_us=machines.world.now, will_delay_s=0)
    machines.wait(10 * SECOND)
    machines.hosts[number - 1].put_out = True
    machines.history.look()
    machines.wait(SECOND // 4)
    assert machines.judge().will_early(life, machines.world.now) == (number == 3)


@pytest.mark.parametrize("leaving", [True, False])
def test_a_member_that_hangs_while_it_leaves_has_failed(leaving: bool) -> None:
    """It leads until it has handed over: what comes to it with QoS 0 is lost."""
    machines = Machines()
    machines.hosts[2].member, machines.hosts[2].leaving = False, leaving
    machines.run(3, up=False)
    machines.wait(SECOND)
    message: Any = SimpleNamespace(first_us=machines.world.now - SECOND // 2)
    assert machines.judge().gap_of_qos0(message) == leaving


@pytest.mark.parametrize("leaves", [True, False])
def test_a_member_that_leaves_gives_its_sessions_to_others_before_it_stops(leaves: bool) -> None:
    """Their leader may start their expiry again (docs/limits.md)."""
    machines = Machines()
    record = SessionRecord(0, "c", V5, 2, machines.world.now)
    record.links = [machines.link(3)]
    machines.wait(SECOND)
    record.links[0].cut_us = machines.world.now
    machines.wait(SECOND)
    if leaves:
        machines.hosts[2].leaves_us.append(machines.world.now)
        machines.hosts[2].member = False
    machines.wait(SECOND)
    assert machines.judge().outlives_expiry(record) == leaves


@pytest.mark.parametrize("member", [True, False])
def test_a_member_that_starts_in_the_moment_in_which_it_fails_was_down(member: bool) -> None:
    """Its sessions have a leader that may start their expiry again."""
    machines = Machines()
    machines.hosts[2].member = member
    record = SessionRecord(0, "c", V5, 2, machines.world.now)
    record.links = [machines.link(3)]
    machines.wait(SECOND)
    record.links[0].cut_us = fell_us = machines.world.now
    assert not machines.judge().outlives_expiry(record)
    machines.run(3, up=False)
    machines.run(3, up=True)
    machines.wait(SECOND)
    assert machines.judge().outlives_expiry(record) == member
    history = machines.history
    assert history.troubled(fell_us, fell_us) == member
    assert history.trouble_end(0, machines.world.now) == (fell_us if member else 0)
    assert not history.troubled(0, fell_us - 1)
    assert not history.troubled(fell_us + 1, machines.world.now)
