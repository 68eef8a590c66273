"""One configuration: its voters and learners, its quorums, and the changes from one configuration to the next.

A change moves at most one voter in or out, so that any quorum of the old configuration shares a member with any quorum
of the new one, and no joint phase is needed (dissertation, 4.1). Every new voter has been a learner before.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE
from folkmoot.raft.codec import FORMAT, Reader, put_bytes, put_ids

__all__ = [
    "ADD_LEARNER",
    "CHANGES",
    "Change",
    "Configuration",
    "DEMOTE",
    "EMPTY",
    "PROMOTE",
    "REMOVE",
    "decode_change",
    "decode_configuration",
    "encode_change",
    "encode_configuration",
]

ADD_LEARNER: Final = 1
PROMOTE: Final = 2
DEMOTE: Final = 3
REMOVE: Final = 4
CHANGES: Final[dict[int, str]] = {ADD_LEARNER: "add-learner", PROMOTE: "promote", DEMOTE: "demote", REMOVE: "remove"}
"""The kinds of changes and their names."""


class Configuration:
    """Voters and learners, both ascending; immutable."""

    def __init__(self, voters: list[int], learners: list[int]) -> None:
        self.voters: list[int] = sorted(voters)
        self.learners: list[int] = sorted(learners)
        self.members: list[int] = sorted(voters + learners)
        self.quorum: int = len(voters) // 2 + 1
        for at in range(1, len(self.members)):
            assert self.members[at - 1] < self.members[at], "a member is listed once"

    def is_voter(self, peer: int) -> bool:
        """Tell whether `peer` votes."""
        return peer in self.voters

    def is_quorum(self, peers: list[int]) -> bool:
        """Tell whether the voters among `peers` (each listed once) are more than half of all voters."""
        count = 0
        for peer in peers:
            if peer in self.voters:
                count += 1
        assert count <= len(self.voters), "each voter counts once"
        return count >= self.quorum and count > 0

    def agreed(self, values: list[int]) -> int:
        """Return the largest value that a quorum has reached; `values` has one value per voter."""
        assert len(values) == len(self.voters), "there is one value for each voter"
        return sorted(values, reverse=True)[self.quorum - 1]

    def after(self, kind: int, peer: int) -> Configuration | None:
        """Return the configuration after a change, or None if the change does not fit this configuration."""
        assert kind in CHANGES, "the kind of a change is known"
        voters = [voter for voter in self.voters if voter != peer]
        learners = [learner for learner in self.learners if learner != peer]
        voter = peer in self.voters
        learner = peer in self.learners
        if kind == ADD_LEARNER and not voter and not learner:
            return Configuration(voters, [*learners, peer])
        if kind == PROMOTE and learner:
            return Configuration([*voters, peer], learners)
        if kind == DEMOTE and voter and voters:
            return Configuration(voters, [*learners, peer])
        if kind == REMOVE and (learner or (voter and voters)):
            return Configuration(voters, learners)
        return None

    def same(self, other: Configuration) -> bool:
        """Tell whether both have the same voters and learners."""
        return self.voters == other.voters and self.learners == other.learners

    def __repr__(self) -> str:
        voters = " ".join([str(peer) for peer in self.voters])
        learners = " ".join([str(peer) for peer in self.learners])
        return f"voters ({voters})" + (f" learners ({learners})" if learners else "")


EMPTY: Final = Configuration([], [])
"""The configuration of a node that has never heard from a leader."""


class Change:
    """What an entry of kind CHANGE carries: a change, the configuration after it, bytes for the state machine."""

    def __init__(self, kind: int, peer: int, configuration: Configuration, context: bytes) -> None:
        assert kind in CHANGES, "the kind of a change is known"
        assert configuration.voters, "a change leaves a voter"
        self.kind = kind
        self.peer = peer
        self.configuration = configuration
        self.context = context


def encode_configuration(configuration: Configuration) -> bytes:
    """Return a configuration as bytes."""
    assert configuration.voters or not configuration.learners, "learners need voters"
    return put_ids(configuration.voters) + put_ids(configuration.learners)


def decode_configuration(reader: Reader) -> Configuration:
    """Read a configuration; raises Malformed if a member is listed twice."""
    voters = reader.ids()
    learners = reader.ids()
    for peer in learners:
        if peer in voters:
            raise reader.fault(f"{peer} is a voter and a learner")
    if learners and not voters:
        raise reader.fault("there are learners and no voter")
    return Configuration(voters, learners)


def encode_change(change: Change) -> bytes:
    """Return a change as the data of an entry."""
    peer = put_ids([change.peer])
    return (
        BYTE[FORMAT] + BYTE[change.kind] + peer + encode_configuration(change.configuration) + put_bytes(change.context)
    )


def decode_change(data: bytes) -> Change:
    """Return the change in the data of an entry; raises Malformed."""
    reader = Reader(data, "change of the configuration")
    reader.version()
    kind = reader.byte()
    peers = reader.ids()
    if kind not in CHANGES or len(peers) != 1:
        raise reader.fault("the kind of change is not known")
    configuration = decode_configuration(reader)
    if not configuration.voters:
        raise reader.fault("no voter is left")
    context = reader.octets()
    reader.end()
    return Change(kind, peers[0], configuration, context)
