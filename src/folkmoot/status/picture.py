"""The source of a node's status: the configuration, roles, loads and progress as this node sees them.

`Picture` is the interface; `AlonePicture` implements it for a node without a cluster, which is all of its own, and
`folkmoot.status.cluster_picture` for a member.
"""

# ruff: noqa: ARG002 - a single node gives the same answer for all arguments

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from folkmoot.kernel.feature import FEATURES
from folkmoot.membership.configuration import ANCESTORS_MAX
from folkmoot.membership.view import View
from folkmoot.node.load import own_load
from folkmoot.node.node import Node
from folkmoot.peer.member import Member
from folkmoot.turn.state import State

__all__ = ["ALONE", "EXCLUDED", "MEMBER", "WAITING", "WITNESS", "AlonePicture", "Picture"]

ALONE: Final = "alone"
MEMBER: Final = "member"
WITNESS: Final = "witness"
WAITING: Final = "waiting"
EXCLUDED: Final = "excluded"


@mypyc_attr(allow_interpreted_subclasses=True)
class Picture(ABC):
    """What one node knows of its cluster at this moment. Reading changes nothing."""

    @abstractmethod
    def node_id(self) -> str:
        """Return the id of this node."""

    @abstractmethod
    def state(self) -> str:
        """Return ALONE, MEMBER or WITNESS (up), WAITING (not up yet) or EXCLUDED (others go on without it)."""

    @abstractmethod
    def view(self) -> View | None:
        """Return the roles of the newest configuration in which this node was up; None before the first."""

    @abstractmethod
    def counter(self) -> int:
        """Return the number of the configuration, which grows with each."""

    @abstractmethod
    def controller(self) -> str:
        """Return the id of the member that leads the configuration log; "" when this node knows none."""

    def voters(self) -> list[str]:
        """Return the ids of the members that vote on the configuration log, sorted."""
        return []

    def lineage(self) -> int:
        """Return the lineage of the configuration; 0 when there is none."""
        return 0

    def forks_left(self) -> int:
        """Return how often the lineage can fork before its oldest ancestors have to be forgotten."""
        return ANCESTORS_MAX

    @abstractmethod
    def policy(self) -> str:
        """Return the policy for splits: "available" or "majority"."""

    def min_in_sync(self) -> int:
        """Return how many copies have to be in sync for a partition to be served."""
        return 1

    @abstractmethod
    def has_lease(self) -> bool:
        """Whether this node may answer clients: it is up, and the controller renews its lease."""

    @abstractmethod
    def replicas(self) -> int:
        """Return how many copies of each partition there should be."""

    @abstractmethod
    def partitions(self) -> int:
        """Return the number of partitions."""

    @abstractmethod
    def replicas_of(self, partition: int) -> list[str]:
        """Return the nodes that have the partition in sync, its leader first; none when it has no leader."""

    @abstractmethod
    def learners_of(self, partition: int) -> list[str]:
        """Return the nodes that are being filled."""

    @abstractmethod
    def known(self) -> list[str]:
        """Return all members that were ever up: those of now, and those that have neither left nor been forgotten."""

    def software(self) -> str:
        """Return the version of the program that this node runs; "" when it is unknown."""
        return ""

    @abstractmethod
    def software_of(self, member: Member) -> str:
        """Return the version of the program that a member runs."""

    @abstractmethod
    def load_of(self, node_id: str) -> dict[str, int]:
        """Return the newest figures that a node has sent: clients, sessions, overload (0 to 10), ..."""

    def overload_why(self) -> str:
        """Return the pressure that makes the level of this node; "" at level 0."""
        return ""

    def clock_offset_us(self) -> int:
        """Return by how much the wall clock of this node is ahead of the time that it uses."""
        return 0

    def lacking(self) -> dict[str, list[str]]:
        """Return the features of this node, each with the members that lack it: on when there are none."""
        return {}

    def disagreements(self) -> list[dict[str, object]]:
        """Return the settings in which other members differ from this node: node, setting, here, there."""
        return []

    @abstractmethod
    def last_heard_us(self, node_id: str) -> int:
        """Return when something last came from a node, in microseconds since 1970; 0: not since the start."""

    def hears(self, node_id: str) -> bool:
        """Whether there is a link to a node, member or not, or it is this one."""
        assert node_id, "a node has an id"
        return False

    def expected(self) -> list[str]:
        """Return the ids of all members that this node knows, also from before its start."""
        return self.known()

    def why_away(self, node_id: str) -> str:
        """Return why a member is away; "" when it is up, or nobody knows."""
        assert node_id, "a node has an id"
        return ""

    def why_out(self) -> str:
        """Return why this node is EXCLUDED, as far as it knows."""
        return ""

    def witnesses(self) -> list[Member]:
        """Return the members without data, up or not."""
        return []

    def is_up(self, node_id: str) -> bool:
        """Whether a member is up, also one without data."""
        view = self.view()
        return view is not None and view.member(node_id) is not None

    def can_vote_without(self, node_id: str) -> bool:
        """Whether the voters that are up can decide on changes of the cluster without a node."""
        assert node_id, "a node has an id"
        return True

    def unanswered(self) -> dict[str, str]:
        """Return the addresses of other nodes without a connection, and why."""
        return {}

    def link_of(self, node_id: str) -> dict[str, int]:
        """Return round_trip_us and backlog_bytes of the connection to a node, nothing when there is none."""
        assert node_id, "a node has an id"
        return {}

    @abstractmethod
    def leads(self, partition: int) -> bool:
        """Whether this node leads the partition and serves it."""

    @abstractmethod
    def knows_subscribers(self) -> bool:
        """Whether this node knows who has subscribed elsewhere: it admits no client before."""

    @abstractmethod
    def leader_open(self, partition: int) -> bool:
        """Whether the leader of the partition, this node or another, serves it."""

    @abstractmethod
    def sequence(self, partition: int) -> int:
        """Return the sequence of the newest change of a partition that this node has; 0 when it has none."""

    @abstractmethod
    def figures(self) -> dict[str, int]:
        """Return damaged (partitions here), bytes_left and bytes_done (copied), and the progress of comparisons.

        Pages compared (digest_checked), found different (digest_different), not comparable (digest_passed_over), and
        the duration of the last round over all led partitions (digest_round_us). Omitted figures are 0.
        """

    @abstractmethod
    def owner_of(self, client_id: str) -> str:
        """Return the node that a client is connected to; "" when it is not connected or this node cannot know."""

    @abstractmethod
    def heals(self) -> list[dict[str, object]]:
        """Return the summaries of heals, the newest last."""

    @abstractmethod
    def evict(self, node_id: str, now: int) -> str:
        """Have a member be away until it is started again; return why not, or "" when it is under way."""

    @abstractmethod
    def forget(self, node_id: str, now: int, force: bool = False) -> str:
        """Remove a member that is away, by force with what only it has; return why not, or "" when it is under way."""

    @abstractmethod
    def leave(self, node_id: str, now: int) -> str:
        """Have a member hand over its partitions and leave; return why not, or "" when it is under way."""

    def is_told_to_leave(self, node_id: str) -> bool:
        """Whether a member leaves, or this node is about to have it leave."""
        assert node_id, "a node has an id"
        return False

    def stay(self, node_id: str, now: int) -> str:
        """Take the leave of a member back; return why not, or "" when it is under way."""
        assert node_id, "a node has an id"
        return _NO_CLUSTER


class AlonePicture(Picture):
    """A node without a cluster: it leads everything and has no followers."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._state: State = node._state  # noqa: SLF001 - the status is a part of the node

    def node_id(self) -> str:
        """Return the id of this node."""
        return self.node.config.node_id

    def state(self) -> str:
        """Return ALONE."""
        return ALONE

    def view(self) -> View | None:
        """Return the roles of this node alone."""
        return self.node.view

    def counter(self) -> int:
        """Return the number of this start."""
        return self.node.view.epoch

    def controller(self) -> str:
        """Return none: there is nothing to agree on."""
        return ""

    def policy(self) -> str:
        """A single node has no splits."""
        return "available"

    def has_lease(self) -> bool:
        """Return True: nobody else could answer."""
        return True

    def replicas(self) -> int:
        """Return one."""
        return 1

    def partitions(self) -> int:
        """Return the number of partitions."""
        return self.node.config.partitions

    def replicas_of(self, partition: int) -> list[str]:
        """Return this node."""
        return [self.node.config.node_id]

    def learners_of(self, partition: int) -> list[str]:
        """Return none."""
        return []

    def known(self) -> list[str]:
        """Return this node."""
        return [self.node.config.node_id]

    def software_of(self, member: Member) -> str:
        """Return the own version."""
        return self.node.config.version

    def load_of(self, node_id: str) -> dict[str, int]:
        """Return the own figures."""
        return own_load(self._state)

    def overload_why(self) -> str:
        """Return the pressure that makes the level."""
        return self._state.overload_why

    def lacking(self) -> dict[str, list[str]]:
        """Return the features of this node: no other node lacks one."""
        return {feature: [] for feature in FEATURES}

    def last_heard_us(self, node_id: str) -> int:
        """Return now."""
        return self._state.now

    def leads(self, partition: int) -> bool:
        """Return True: it leads everything."""
        return True

    def knows_subscribers(self) -> bool:
        """Return True: there is nobody elsewhere."""
        return True

    def leader_open(self, partition: int) -> bool:
        """Return True: it leads everything."""
        return True

    def sequence(self, partition: int) -> int:
        """Return the sequence of the newest change since the start."""
        return self._state.writer.sequence(partition)

    def figures(self) -> dict[str, int]:
        """Return no figures: there are no other copies."""
        return {"bytes_left": 0}

    def owner_of(self, client_id: str) -> str:
        """Return this node when the client is connected."""
        session = self._state.sessions.get(client_id)
        return self.node.config.node_id if session is not None and session.connection is not None else ""

    def heals(self) -> list[dict[str, object]]:
        """Return none."""
        return []

    def evict(self, node_id: str, now: int) -> str:
        """Refuse."""
        return _NO_CLUSTER

    def forget(self, node_id: str, now: int, force: bool = False) -> str:
        """Refuse."""
        return _NO_CLUSTER

    def leave(self, node_id: str, now: int) -> str:
        """Refuse."""
        return _NO_CLUSTER


_NO_CLUSTER: Final = "this node has no cluster: it was started without --peer"
