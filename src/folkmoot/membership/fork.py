"""Forks: what a lineage begins with whose founders do not reach a quorum of its parent, and which lineage is the trunk.

A fork begins with a copy of the configuration, at the next index, in which the members that its founders do not reach
are away. (A process that founds it alone is the only one that is up; the others on its side come up by a START.)
A partition whose copies in sync are all there keeps them in sync and has no leader: it is absent, not empty. Each of
them has what was committed in the parent, so whichever comes first leads it.
Who was forgotten by an operator, because it will not come back, is no member of the fork.
Counters go on from those of the parent, so that what the fork writes is newer than what it shares.

A founder *in doubt* (`membership/doubt`) may lack what it has confirmed in the parent. Its fork shares with the parent
no more than the parent itself began with: so whatever any copy has of the parent, also that of the founder, is a branch
in the fork, and what one of them has and the others lack is merged. Which of them comes first does not matter then.

When lineages meet, one of them is the *trunk*, and the others are merged into it. An ancestor comes before all that
descend from it: it goes on only with a quorum of its voters, and its descendants are what did not have that. Of others
the one that had leaders for more partitions when it began has more to merge into. Between two lineages that is
`outranks`. It has circles with a third one: an ancestor outranks its weak parent's strong child, which outranks a
stranger, which outranks the ancestor. Where more than two meet, `trunk_of` decides, once for all of them.

A lineage that has forgotten its oldest ancestors (`ClusterConfiguration.floor`) *outlives* all lineages of their time
that it does not know: all members have left them for this one, so only a process that was removed can be in one of
them, or one whose folder is old. It is not the trunk, whatever it had, and its changes are merged.
"""

from __future__ import annotations

from folkmoot.membership.command import CUT_OFF, MarkAway
from folkmoot.membership.configuration import ANCESTORS_MAX, ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.lifecycle import is_up
from folkmoot.membership.transition import Transition

__all__ = ["Lineage", "fork_of", "lineage_in", "outranks", "trunk_of"]


class Lineage:
    """What decides between lineages; immutable.

    Args:
        lineage: Its identity.
        ancestors: The lineages from which it descends; not only the parent, which may have been merged already.
        strength: The partitions that had a leader when it began; 0 if it is no fork.
        began: The last counter that it shares with its parent; 0 if it is no fork.
        floor: The last counter that it shares with an ancestor that it has forgotten; 0: it has forgotten none.
    """

    def __init__(self, lineage: int, ancestors: list[int], strength: int, began: int = 0, floor: int = 0) -> None:
        assert lineage not in ancestors, "a lineage does not descend from itself"
        self.lineage = lineage
        self.ancestors = ancestors
        self.strength = strength
        self.began = began
        self.floor = floor

    def outlives(self, other: Lineage) -> bool:
        """Tell whether another lineage is of the time of ancestors that this one has forgotten, and unknown to it."""
        if self.floor == 0 or other.began > self.floor or other.lineage == self.lineage:
            return False
        return other.lineage not in self.ancestors and self.lineage not in other.ancestors

    def __repr__(self) -> str:
        return f"lineage {self.lineage} of {self.ancestors} strength {self.strength}"


def lineage_in(configuration: ClusterConfiguration) -> Lineage:
    """Return the lineage of a configuration."""
    ancestors = configuration.ancestors
    began = ancestors[-1][1] if ancestors else 0
    known = [one[0] for one in ancestors]
    return Lineage(configuration.lineage, known, configuration.strength, began, configuration.floor)


def fork_of(
    configuration: ClusterConfiguration,
    lineage: int,
    absent: list[tuple[int, int]],
    founder: int = 0,
    forgotten: list[int] | None = None,
    *,
    anew: bool = False,
    in_doubt: bool = False,
) -> ClusterConfiguration:
    """Return the configuration with which a fork begins, for `ConfigurationLog.fork`; the argument is unchanged.

    Args:
        configuration: Of the parent, with everything that the founder has applied.
        lineage: The identity of the fork, drawn at random.
        absent: The members that the founders do not reach: disks and incarnations. A process that has started since is
            not meant.
        founder: The disk of the process that founds it alone: all others come up in it by a START of their own. They
            may have applied more of the parent, and then have changes that the fork does not share. 0: they stay up.
        forgotten: Members that the founders do not reach and that will not come back, as an operator has said: they are
            removed, and what only they had is lost.
        anew: So does the founder, which has applied more of the parent before than this configuration has. The
            partitions stay its own of which it has a copy in sync.
        in_doubt: The founder may lack what it has confirmed in the parent: see the module's text.
    """
    known = {configuration.lineage}
    known.update([one[0] for one in configuration.ancestors])
    assert lineage not in known, "a fork is new"
    gone = [] if forgotten is None else sorted(forgotten)
    shared = _begun(configuration) if in_doubt else configuration.counter()
    # With all that are on the side of the founder:
    both = _descend(configuration, lineage, shared, sorted(absent), gone, 0)
    fork = both
    if founder:
        others = [disk for disk in configuration.disks() if disk != founder or anew]
        away = [(disk, configuration.members[disk].incarnation) for disk in others]
        fork = _descend(configuration, lineage, shared, away, gone, founder if anew else 0)
    fork.strength = len([state for state in both.partitions if state.leader])
    fork.check()
    return fork


def _begun(configuration: ClusterConfiguration) -> int:
    """Return the counter with which a lineage began: all that come from it have what was before."""
    return configuration.ancestors[-1][1] + 1 if configuration.ancestors else 1


def _descend(
    configuration: ClusterConfiguration,
    lineage: int,
    shared: int,
    absent: list[tuple[int, int]],
    forgotten: list[int],
    founder: int,
) -> ClusterConfiguration:
    """Return a copy that begins a lineage in which these processes are away; see `Transition.begin`."""
    fork = decode_configuration(encode_configuration(configuration))
    fork.ancestors = [*fork.ancestors, (fork.lineage, shared)]
    assert len(fork.ancestors) <= ANCESTORS_MAX, "who forks has seen that it may (`Splits.forks`)"
    fork.parent = fork.lineage
    fork.parent_index = fork.index
    fork.lineage = lineage
    deaths: list[MarkAway] = []
    for disk, incarnation in absent:
        member = fork.members.get(disk)
        if member is not None and is_up(member.state):
            deaths.append(MarkAway(disk, incarnation, member.version, CUT_OFF))
    Transition(fork).begin(fork.index + 1, deaths, [disk for disk in forgotten if disk in fork.members], founder)
    return fork


def outranks(one: Lineage, other: Lineage) -> bool:
    """Tell which of two lineages is the trunk: the ancestor, else the stronger one, else the one with the lower id.

    One that outlives the other comes before it, like an ancestor.
    """
    if one.lineage in other.ancestors or one.outlives(other):
        return True
    if other.lineage in one.ancestors or other.outlives(one):
        return False
    if one.strength != other.strength:
        return one.strength > other.strength
    return one.lineage < other.lineage


def trunk_of(lineages: list[Lineage]) -> Lineage:
    """Return the trunk of all lineages that have met: of those without an ancestor among them the one before all.

    Those that another one outlives do not count.

    If each says that it descends from another one, which no correct members do, none is taken to descend from any.
    """
    assert lineages, "there is a lineage"
    left = [one for one in lineages if not _is_outlived(one, lineages)] or lineages
    met = {one.lineage for one in left}
    eldest = [one for one in left if not met.intersection(one.ancestors)]
    if not eldest:
        eldest = [Lineage(one.lineage, [], one.strength) for one in left]
    trunk = eldest[0]
    for one in eldest:
        if outranks(one, trunk):
            trunk = one
    return trunk


def _is_outlived(one: Lineage, lineages: list[Lineage]) -> bool:
    for other in lineages:
        if other.outlives(one):
            return True
    return False
