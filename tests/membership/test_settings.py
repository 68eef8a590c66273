"""Requests for settings of the whole cluster: each is made once and answered in time, and nothing goes in silence."""

from __future__ import annotations

from functools import partial

import pytest

from folkmoot.kernel.rng import Rng
from folkmoot.membership.cluster_settings import (
    ANY,
    CHANGES_MAX,
    JUDGED_MAX,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    ClusterSettings,
    RequestId,
    dropped_keys,
    is_possible,
    take_settings,
)
from folkmoot.membership.command import FORGOTTEN, Delete, MarkAway, Put, Remove, decode_command, encode_command
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.control_message import REPLY, kind_of
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.requests import NOT_ASKED, TICKETS_MAX, UNKNOWN_FATE, Requests
from folkmoot.membership.transition import (
    ACCEPTED,
    INVALID,
    OLD_VERSION,
    OTHER_NUMBER,
    UNCHANGED,
    UNKNOWN_DISK,
    Result,
    Transition,
)
from folkmoot.peer.cursor import Cursor
from folkmoot.peer.kind import CONTROL
from tests.membership.reference import founded
from tests.membership.simulated_control import Machine, S
from tests.membership.test_control import begun, control, controller, follower, has_forked


def put(machine: Machine, key: str, value: bytes, expected: int = ANY) -> int:
    return control(machine).requests.put(key, value, expected, f"ann at {machine.name}")


def answers(machine: Machine) -> list[tuple[int, int]]:
    """Return the tickets that were answered, and how."""
    return [(answer.ticket, answer.refused) for answer in control(machine).requests.answers]


def value(machine: Machine, key: str) -> bytes | None:
    configuration = control(machine).configuration
    assert configuration is not None
    found = configuration.settings.values.get(key)
    return None if found is None else found.value


@pytest.mark.parametrize("size", [VALUE_BYTES_MAX + 1, 2 << 20])
def test_a_value_that_the_log_would_never_take_is_refused(size: int) -> None:
    cluster = begun(1, 3)
    asker = follower(cluster)
    ticket = put(asker, "k", bytes(size))
    cluster.run(5 * S)
    assert answers(asker) == [(ticket, INVALID)]


@pytest.mark.parametrize("key", ["", "a" * (KEY_BYTES_MAX + 1), "a\nb", "a\0", "\x7f", "\ud800"])
def test_keys_are_texts_that_can_be_shown(key: str) -> None:
    requests = Requests(1, 1, ControlOptions())
    ticket = requests.put(key, b"", ANY, "ann")
    assert [(one.ticket, one.refused) for one in requests.answers] == [(ticket, INVALID)]
    assert requests.due(1, 1) == []
    assert is_possible("users/ann é", "ann", 0)
    assert not is_possible("k", "", 0), "every change has an author"


@pytest.mark.parametrize("leads", [True, False])
def test_a_request_without_a_controller_is_answered_all_the_same(leads: bool) -> None:
    cluster = begun(2, 3, forks=False)
    asker = controller(cluster) if leads else follower(cluster)
    cluster.isolate(asker, cluster.machines, True)
    cluster.run(S // 20)
    sent = put(asker, "k", b"1")
    cluster.run(5 * S)
    assert answers(asker) == [], "a leader may come"
    late = put(asker, "k", b"2")
    cluster.run(6 * S)
    assert answers(asker) == [(sent, UNKNOWN_FATE)]
    cluster.run(5 * S)
    assert [ticket for ticket, _refused in answers(asker)] == [sent, late]
    assert {refused for _ticket, refused in answers(asker)} <= {UNKNOWN_FATE, NOT_ASKED}


def test_a_process_that_is_over_answers_at_once() -> None:
    cluster = begun(3, 3)
    asker = follower(cluster)
    control(controller(cluster)).evict(asker.name)
    cluster.until(lambda: control(asker).fault != "", 10 * S)
    ticket = put(asker, "k", b"1")
    control(asker).step(asker.clock(cluster.now))
    assert answers(asker) == [(ticket, NOT_ASKED)]
    assert "nothing was changed" in control(asker).requests.answers[0].text()


def test_a_request_whose_reply_was_lost_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = begun(4, 3)
    asker, leader = follower(cluster), controller(cluster)
    carry = cluster.carry
    lost: list[int] = []

    def lose(sender: Machine, to: Machine, kind: int, body: bytes) -> None:
        if to is asker and kind == CONTROL and kind_of(body) == REPLY and not lost:
            lost.append(1)
        else:
            carry(sender, to, kind, body)

    monkeypatch.setattr(cluster, "carry", lose)
    first = put(asker, "k", b"first")
    cluster.until(lambda: bool(lost), S)
    assert value(leader, "k") == b"first"
    second = put(leader, "k", b"second")
    cluster.run(5 * S)
    assert answers(leader) == [(second, ACCEPTED)]
    assert answers(asker) == [(first, ACCEPTED)]
    assert [value(machine, "k") for machine in cluster.machines] == [b"second"] * 3, "and is not undone"
    settings = control(leader).configuration
    assert settings is not None
    changes = settings.settings.changes
    assert [change.number for change in changes] == [
        control(asker).requests.answers[0].index,
        control(leader).requests.answers[0].index,
    ]


def test_a_request_that_expects_a_number_is_not_refused_because_it_was_made() -> None:
    cluster = begun(5, 3)
    asker = follower(cluster)
    ticket = put(asker, "k", b"first", 0)
    leader = controller(cluster)
    control(leader).controller.request(asker.disk, ticket, sent_by(asker), leader.clock(cluster.now))  # type: ignore[union-attr]
    cluster.run(3 * S)
    assert answers(asker) == [(ticket, ACCEPTED)]


def sent_by(machine: Machine) -> bytes:
    """Return the command of the request that a machine is about to send."""
    (request,) = control(machine).requests.due(control(machine).lineage, machine.clock(0))
    return request.command


def test_a_member_asks_under_its_own_name_only() -> None:
    cluster = begun(6, 3)
    leader, asker = controller(cluster), follower(cluster)
    for named in (RequestId(leader.disk, 1, 77, 77), RequestId(asker.disk, 1, 76, 76)):
        forged = encode_command(Put("k", b"", ANY, "eve", named))
        control(leader).controller.request(asker.disk, 77, forged, leader.clock(cluster.now))  # type: ignore[union-attr]
    replies = control(leader).controller.out  # type: ignore[union-attr]
    assert [(disk, reply.number, reply.refused) for disk, reply in replies] == [(asker.disk, 77, INVALID)] * 2


# The rule


def cluster_of_three() -> Transition:
    transition = Transition(ClusterConfiguration())
    transition.apply_command(2, founded([1, 2, 3], 1))
    return transition


def change(transition: Transition, command: Put | Delete) -> Result:
    decoded = decode_command(encode_command(command))
    return transition.apply_command(transition.configuration.index + 1, decoded)


def test_what_was_judged_is_remembered_until_its_process_has_the_answer() -> None:
    transition = cluster_of_three()
    settings = transition.configuration.settings
    first = change(transition, Put("k", b"1", ANY, "a", RequestId(1, 5, 7, 7)))
    refused = change(transition, Put("k", b"2", 99, "a", RequestId(1, 5, 9, 7)))
    assert (first.refused, refused.refused) == (ACCEPTED, OTHER_NUMBER)
    change(transition, Delete("k", ANY, "b", RequestId(2, 1, 1, 1)))
    for _ in range(2):
        again = change(transition, Put("k", b"1", ANY, "a", RequestId(1, 5, 7, 7)))
        assert (again.refused, again.first) == (UNCHANGED, (first.index, ACCEPTED))
        again = change(transition, Put("k", b"2", 99, "a", RequestId(1, 5, 9, 7)))
        assert (again.refused, again.first) == (UNCHANGED, (refused.index, OTHER_NUMBER))
        data = encode_configuration(transition.configuration)
        transition = Transition(decode_configuration(data))
        assert encode_configuration(transition.configuration) == data
        settings = transition.configuration.settings
    assert settings.values == {}
    change(transition, Put("k", b"3", ANY, "a", RequestId(1, 5, 10, 9)))
    assert change(transition, Put("k", b"1", ANY, "a", RequestId(1, 5, 7, 7))).refused == OLD_VERSION
    assert change(transition, Put("k", b"2", 99, "a", RequestId(1, 5, 9, 9))).first == (refused.index, OTHER_NUMBER)
    change(transition, Put("k", b"4", ANY, "a", RequestId(1, 6, 2, 2)))
    assert change(transition, Put("k", b"3", ANY, "a", RequestId(1, 5, 10, 9))).refused == OLD_VERSION
    assert settings.values["k"].value == b"4"
    assert change(transition, Put("k", b"", ANY, "a", RequestId(9, 1, 1, 1))).refused == UNKNOWN_DISK


def test_what_is_remembered_is_bounded_and_goes_with_the_member() -> None:
    transition = cluster_of_three()
    before = encode_configuration(transition.configuration)
    for number in range(1, JUDGED_MAX + 1):
        last = change(transition, Delete("k", ANY, "a", RequestId(2, 1, number, 1)))
        assert last.refused == UNCHANGED
        assert last.first is None
    assert "no room" in change(transition, Put("k", b"", ANY, "a", RequestId(2, 1, 5000, 1))).text()
    assert change(transition, Put("k", b"", ANY, "a", RequestId(2, 1, 5000, 5000))).refused == ACCEPTED
    assert change(transition, Delete("k", ANY, "a", RequestId(2, 1, 5001, 5001))).refused == ACCEPTED
    configuration = transition.configuration
    index = configuration.index
    transition.apply_command(index + 1, MarkAway(2, 1, configuration.members[2].version, 1))
    transition.apply_command(index + 2, Remove(2, configuration.members[2].version, FORGOTTEN, True))
    assert len(encode_configuration(configuration)) < len(before) + 100
    assert take_settings(Cursor(configuration.settings.encoded(), "settings")).encoded()


def test_a_process_has_so_many_requests_on_their_way() -> None:
    requests = Requests(1, 1, ControlOptions())
    tickets = [requests.put("k", b"", ANY, "ann") for _ in range(TICKETS_MAX + 1)]
    assert [(one.ticket, one.refused) for one in requests.answers] == [(tickets[-1], NOT_ASKED)]
    assert len(requests.due(1, 1)) == TICKETS_MAX


def test_dropped_keys_are_those_that_have_other_values() -> None:
    rng = Rng(7)
    for _ in range(200):
        shared, before, now = ClusterSettings(), ClusterSettings(), ClusterSettings()
        draw(rng, [shared, before, now], 1)
        mine = draw(rng, [before], 100)
        draw(rng, [now], 100)
        wanted = [key for key in sorted(mine) if before.values.get(key) and not same(before, now, key)]
        wanted += [key for key in sorted(mine) if not before.values.get(key) and now.values.get(key)]
        assert dropped_keys(before, now, 0) == sorted(wanted)
        assert dropped_keys(before, now, 99) == sorted(wanted)
        assert dropped_keys(shared, now, 0) == [], "it was only behind"


def same(one: ClusterSettings, other: ClusterSettings, key: str) -> bool:
    there = other.values.get(key)
    return there is not None and there.value == one.values[key].value


def draw(rng: Rng, all_settings: list[ClusterSettings], start: int) -> set[str]:
    """Make the same changes everywhere; return their keys."""
    keys: set[str] = set()
    for number in range(start, start + rng.below(6)):
        key = f"k{rng.below(5)}"
        keys.add(key)
        data = bytes([rng.below(2)])
        gone = rng.chance(1, 3) and key in all_settings[0].values
        author = f"{start} {rng.below(1000)}"
        for settings in all_settings:
            if gone:
                settings.delete(key, number, author)
            else:
                settings.put(key, data, number, author)
    return keys


def test_a_fork_tells_which_of_its_settings_the_trunk_does_not_have() -> None:
    cluster = begun(8, 3)
    lone = follower(cluster)
    other = next(machine for machine in cluster.machines if machine is not lone)
    put(other, "both", b"0")
    cluster.run(3 * S)
    before = control(lone).lineage
    cluster.isolate(lone, cluster.machines, True)
    cluster.until(partial(has_forked, cluster, lone, before), 30 * S)
    for key, data in (("both", b"fork"), ("fork", b"1"), ("same", b"2")):
        put(lone, key, data)
    for key, data in (("trunk", b"3"), ("same", b"2")):
        put(other, key, data)
    cluster.run(3 * S)
    assert [value(lone, key) for key in ("both", "fork", "trunk")] == [b"fork", b"1", None]
    cluster.isolate(lone, cluster.machines, False)
    cluster.until(cluster.is_whole, 60 * S)
    cluster.run(S)
    assert [value(lone, key) for key in ("both", "fork", "trunk")] == [b"0", None, b"3"]
    told = [line for line in cluster.log if "settings_dropped" in line]
    assert len(told) == 1
    assert told[0].endswith("total=2 keys=['both', 'fork'])")
    assert lone.name in told[0]


def test_who_was_only_away_has_dropped_nothing() -> None:
    cluster = begun(9, 3)
    put(follower(cluster), "k", b"0")
    cluster.run(3 * S)
    away = controller(cluster)
    cluster.isolate(away, cluster.machines, True)
    cluster.run(S)
    others = [machine for machine in cluster.machines if machine is not away]
    cluster.run(4 * S)
    for number in range(CHANGES_MAX + 10):
        put(others[0], "k", b"%d" % number)
        if number % 100 == 0:
            cluster.run(S)
    cluster.run(5 * S)
    cluster.isolate(away, cluster.machines, False)
    cluster.until(cluster.is_whole, 60 * S)
    assert not [line for line in cluster.log if "settings_dropped" in line]
