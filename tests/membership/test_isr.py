"""What the leader of partitions asks the configuration log for when learners have everything."""

from __future__ import annotations

from folkmoot.membership.command import SILENT, Activate, Lead
from folkmoot.membership.isr import isr_request
from folkmoot.membership.transition import INELIGIBLE
from tests.membership.test_projection import Story, story


def filled(found: Story, *places: tuple[int, int]) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Learners by partition and disk, as they are now."""
    configuration = found.configuration
    return {
        (number, disk): (state.leader_epoch, configuration.members[disk].started, state.version)
        for number, disk in places
        for state in [configuration.partitions[number]]
    }


def test_a_leader_asks_for_those_that_it_has_filled() -> None:
    found = story([1, 2, 3], partitions=3)
    for number in range(3):
        found.isr([1], number)
    seen = filled(found, (0, 3), (0, 2), (2, 2))
    request = isr_request(found.configuration, 1, seen, {}, 1)
    assert request is not None
    assert [(item.partition, item.isr) for item in request.items] == [(0, [1, 3, 2]), (2, [1, 2])]
    assert isr_request(found.configuration, 1, seen, {}, 1) is not None, "it asks until it is heard"
    view = found.do(request)
    assert view.replicas == [["node1", "node2", "node3"], ["node1"], ["node1", "node2"]]
    assert isr_request(found.configuration, 1, seen, {}, 1) is None, "it has what it asked for"
    assert seen == {}
    assert isr_request(found.configuration, 2, filled(found, (1, 3)), {}, 1) is None, "it does not lead"


def test_what_was_filled_under_another_leadership_is_not_asked_for() -> None:
    found = story([1, 2, 3])
    found.isr([1, 2])
    seen = filled(found, (0, 3))
    found.do(Lead(0, found.configuration.partitions[0].version, 2))
    found.do(Lead(0, found.configuration.partitions[0].version, 1))
    assert isr_request(found.configuration, 1, seen, {}, 1) is None
    assert seen == {}


def test_who_is_away_or_gone_is_not_asked_for() -> None:
    found = story([1, 2, 3])
    found.isr([1])
    seen = filled(found, (0, 2), (0, 3))
    found.away(3)
    request = isr_request(found.configuration, 1, {**seen, (0, 9): (1, 1, 1)}, {}, 1)
    assert request is not None
    assert [item.isr for item in request.items] == [[1, 2]]


def test_a_request_is_void_when_its_learner_has_come_up_again() -> None:
    found = story([1, 2, 3])
    found.isr([1])
    seen = filled(found, (0, 2))
    request = isr_request(found.configuration, 1, seen, {}, 1)
    assert request is not None
    found.away(2, SILENT)
    one = found.configuration.members[2]
    found.do(Activate(2, one.version, one.process))
    assert found.apply(request) == INELIGIBLE
    assert isr_request(found.configuration, 1, seen, {}, 1) is None, "it is filled again first"


def test_what_was_filled_before_its_copy_was_begun_anew_is_not_asked_for() -> None:
    found = story([1, 2, 3])
    found.isr([1, 3])
    seen = filled(found, (0, 2))
    found.isr([1, 3, 2])
    found.isr([1, 3])
    assert isr_request(found.configuration, 1, seen, {}, 1) is None
    assert seen == {}


def test_a_leadership_begins_where_there_were_too_few_copies() -> None:
    found = story([1, 2, 3])
    found.isr([1])
    request = isr_request(found.configuration, 1, filled(found, (0, 2)), {}, 2)
    assert request is not None
    assert [item.anew for item in request.items] == [True]
    epoch = found.configuration.partitions[0].leader_epoch
    found.do(request)
    assert found.configuration.partitions[0].leader_epoch == epoch + 1
    assert found.configuration.partitions[0].leader == 1


def test_the_leader_says_when_what_is_left_is_the_same_and_asks_for_learners_then() -> None:
    """A learner in sync beside copies that were not compared would hide that one of these is away."""
    found = story([1, 2, 3])
    found.isr([1, 2])
    state = found.configuration.partitions[0]
    found.configuration.recovering[0] = True
    seen = filled(found, (0, 3))
    recovered = {0: (state.leader_epoch, state.version - 1)}
    assert isr_request(found.configuration, 1, seen, recovered, 1) is None, "it was so before the last change"
    assert recovered == {}
    assert seen != {}
    recovered = {0: (state.leader_epoch, state.version)}
    request = isr_request(found.configuration, 1, seen, recovered, 3)
    assert request is not None
    assert [(item.isr, item.anew) for item in request.items] == [([1, 2], False)]
    found.configuration.lost[0] = 1
    found.do(request)
    assert found.configuration.recovering == {}
    assert isr_request(found.configuration, 1, {}, recovered, 1) is None
