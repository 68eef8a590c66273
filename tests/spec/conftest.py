"""The boxes that the tests of this folder use: one node, and three with every client at another node than the next.

Three nodes are as many more seconds as the interpreted run can do without: there they run in the compiled run only, and
in `make soak`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from folkmoot.cli.version import is_compiled
from tests.harness.box import Box
from tests.harness.fixture import MakeBox, box, make_boxes
from tests.harness.simulated_cluster import SimulatedBox
from tests.harness.soak import SOAK

__all__ = ["box", "make"]

NODES = [1, 3] if is_compiled() or SOAK else [1]

# By the name of the test: what is different with three nodes, and why that is right.
DIFFERENT = {
    "test_the_server_uses_aliases_where_it_may": "a leader elsewhere uses no aliases: they would not outlive it",
    "test_very_long_topics_get_no_alias": "a leader elsewhere uses no aliases: they would not outlive it",
    "test_the_waiting_time_is_subtracted": "time passes while nodes find each other after a power failure",
    "test_a_waiting_will_survives_a_crash": "time passes while nodes find each other after a power failure",
    "test_a_retained_message_counts_down": "time passes while nodes find each other after a power failure",
    "test_a_session_ends_when_its_expiry_interval_has_passed": "time passes while nodes find each other",
    "test_what_a_full_disk_cannot_keep_is_not_acknowledged": "other nodes learn of a full disk with the next heartbeat",
    "test_acknowledgements_that_waited_are_not_sent_after_the_end": "it looks into the one node",
}


@pytest.fixture(params=NODES, ids=[f"{nodes}node" for nodes in NODES])
def make(request: pytest.FixtureRequest) -> Iterator[MakeBox]:
    """Make boxes with arguments of `Box`; `bystander=False` leaves the bystander out."""
    if request.param == 3 and (why := DIFFERENT.get(request.function.__name__)) is not None:
        pytest.skip(why)
    with make_boxes(Box if request.param == 1 else SimulatedBox) as made:
        yield made
