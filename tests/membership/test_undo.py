"""An order that is taken back while its fate is not known here."""

from __future__ import annotations

from folkmoot.membership.command import Stay, decode_command
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.control_message import Reply
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.lifecycle import is_leaving
from folkmoot.membership.requests import Requests
from folkmoot.membership.transition import Transition
from tests.membership.reference import founded

S = 1_000_000_000


def test_a_leave_whose_reply_was_lost_is_taken_back() -> None:
    # The first copy is an entry, so the second one is outdated; the member leaves all the same, and was to stay.
    configuration = ClusterConfiguration()
    transition = Transition(configuration)
    transition.apply_command(2, founded([1, 2, 3], 4))
    requests = Requests(1, 1, ControlOptions())
    requests.leave(configuration, configuration.members[2].node_id)
    requests.sent(requests.due(7, 5 * S), 5 * S)
    requests.stay(configuration, configuration.members[2].node_id)
    (again,) = requests.due(7, 7 * S)
    requests.sent([again], 7 * S)
    transition.apply_command(3, decode_command(again.command))
    judged = transition.apply_command(4, decode_command(again.command))
    requests.replied(Reply(again.number, 4, judged.refused, False), 7 * S)
    requests.repeat(configuration, 7 * S)
    (undo,) = [decode_command(request.command) for request in requests.due(7, 8 * S)]
    assert isinstance(undo, Stay)
    assert transition.apply_command(5, undo).is_accepted()
    assert not is_leaving(configuration.members[2].state)
