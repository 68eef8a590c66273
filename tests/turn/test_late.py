"""A server that stood still, or whose clock was set, has not listened: nobody was silent for it."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import Will
from tests.harness.box import Box
from tests.harness.version import BOTH


@BOTH
@pytest.mark.parametrize("jump_s", [60, 86_400])
def test_clients_are_not_blamed_for_a_jump_of_the_clock(box: Box, version: int, jump_s: int) -> None:
    peers = [box.client(f"a{number}", version) for number in range(3)]
    for peer in peers:
        peer.connect(keep_alive_s=10, will=Will(b"w", b"gone"))
    box.advance(5 * SECOND)
    box.now += jump_s * SECOND
    box.run()
    assert not any(peer.closed for peer in peers)
    assert box.kinds().count("woke_late") == 1
    peers[0].ping()
    box.advance(14 * SECOND)
    assert not any(peer.closed for peer in peers)
    peers[0].ping()
    box.advance(2 * SECOND)
    assert [peer.closed for peer in peers] == [False, True, True], "silence from then on counts"


def test_a_deadline_that_is_a_little_late_is_none_of_it(box: Box) -> None:
    peer = box.client("a")
    peer.connect(keep_alive_s=10)
    box.advance(12 * SECOND)
    box.now += 4 * SECOND
    box.run()
    peer.expect_close(0x8D)
    assert "woke_late" not in box.kinds()


def test_a_start_is_not_late(box: Box) -> None:
    """Sessions that ended while the node was down are no sign of a slow one."""
    peer = box.client("a")
    peer.connect(clean_start=False, session_expiry=10)
    peer.lose()
    box.now += 60 * SECOND
    box.crash()
    peer.connect(clean_start=False, session_expiry=10)
    assert "woke_late" not in box.kinds()
