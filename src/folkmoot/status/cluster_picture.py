"""The source of a member's status: the configuration log, its links, and the progress of its copies."""

from __future__ import annotations

from folkmoot.kernel.feature import lacking
from folkmoot.membership.holding import DAMAGED
from folkmoot.membership.membership import Membership
from folkmoot.membership.view import View
from folkmoot.merge.heals import Heals
from folkmoot.node.load import own_load
from folkmoot.node.node import Node
from folkmoot.peer.accord import disagreements, settings_of
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.member import Member
from folkmoot.peer.peers import Peers
from folkmoot.replica.replication import Replication
from folkmoot.status.picture import AlonePicture, Picture
from folkmoot.store.epoch import counter_of
from folkmoot.turn.state import State

__all__ = ["ClusterPicture", "picture_of"]


class ClusterPicture(Picture):
    """The cluster as one member knows it."""

    def __init__(
        self,
        me: Member,
        config: ClusterConfig,
        membership: Membership,
        peers: Peers,
        replication: Replication,
        state: State,
        heals: Heals,
    ) -> None:
        self._me = me
        self._config = config
        self._membership = membership
        self._peers = peers
        self._replication = replication
        self._state = state
        self._heals = heals

    def node_id(self) -> str:
        """Return the id of this node."""
        return self._me.node_id

    def state(self) -> str:
        """Return MEMBER, WITNESS, WAITING or EXCLUDED."""
        return self._membership.state

    def view(self) -> View | None:
        """Return the roles of the newest configuration in which this node was up."""
        return self._membership.view

    def counter(self) -> int:
        """Return the number of the configuration."""
        view = self._membership.view
        return 0 if view is None else counter_of(view.epoch)

    def controller(self) -> str:
        """Return the member that leads the configuration log."""
        return self._membership.controller

    def voters(self) -> list[str]:
        """Return the members that vote on the configuration log."""
        return self._membership.voters()

    def lineage(self) -> int:
        """Return the lineage of the configuration."""
        return self._membership.lineage

    def forks_left(self) -> int:
        """Return how often the lineage can fork."""
        return self._membership.forks_left

    def policy(self) -> str:
        """Return the split policy."""
        return self._config.split_policy

    def min_in_sync(self) -> int:
        """Return the setting."""
        return self._config.min_in_sync

    def has_lease(self) -> bool:
        """Whether this node is up and has a lease."""
        return self._membership.is_live(self._state.now)

    def replicas(self) -> int:
        """Return how many copies of each partition there should be: the highest setting of all members."""
        view = self._membership.view
        members = [] if view is None else view.members
        told = [self._membership.load_of(member.node_id).get("replicas", 0) for member in members]
        return max([self._config.replicas, *told])

    def partitions(self) -> int:
        """Return the number of partitions."""
        return self._state.partitions

    def replicas_of(self, partition: int) -> list[str]:
        """Return the nodes that have the partition in sync, its leader first."""
        view = self._membership.view
        return [] if view is None or partition >= len(view.replicas) else view.replicas[partition]

    def learners_of(self, partition: int) -> list[str]:
        """Return the nodes that are being filled."""
        view = self._membership.view
        return [] if view is None or partition >= len(view.learners) else view.learners[partition]

    def known(self) -> list[str]:
        """Return the members that were ever up."""
        view = self._membership.view
        return [] if view is None else view.known

    def software(self) -> str:
        """Return the version of this program."""
        return self._me.software

    def software_of(self, member: Member) -> str:
        """Return the version of the program that a member runs."""
        return member.software

    def load_of(self, node_id: str) -> dict[str, int]:
        """Return the newest figures that a node has sent; for this node the present ones, unless it has sent others."""
        told = self._membership.load_of(node_id)
        return {**own_load(self._state), **told} if node_id == self._me.node_id else told

    def overload_why(self) -> str:
        """Return the pressure that makes the level of this node."""
        return self._state.overload_why

    def clock_offset_us(self) -> int:
        """Return by how much the wall clock of this node is ahead of the time that it uses."""
        return self._state.clock.own_us - self._state.clock.shift_us

    def lacking(self) -> dict[str, list[str]]:
        """Return the features of this node with the members that lack them."""
        view = self._membership.view
        members = [] if view is None else [member.node_id for member in view.members]
        others = [node_id for node_id in members if node_id != self._me.node_id]
        told = self._peers.features()
        return {feature: lacking(feature, others, told) for feature in self._config.features}

    def disagreements(self) -> list[dict[str, object]]:
        """Return the settings in which other members differ from this node."""
        view = self._membership.view
        told = self._peers.settings()
        own = settings_of(self._config)
        found: list[dict[str, object]] = []
        for member in [] if view is None else view.members:
            theirs = told.get(member.node_id)
            if theirs is not None:
                found.extend([one.fields(member.node_id) for one in disagreements(own, theirs)])
        return found

    def last_heard_us(self, node_id: str) -> int:
        """Return when something last came from a node."""
        return self._peers.last_seen_us(node_id)

    def hears(self, node_id: str) -> bool:
        """Whether there is a link to a node, or it is this one: a link that is silent is closed."""
        return node_id == self._me.node_id or node_id in self._peers.up_ids()

    def expected(self) -> list[str]:
        """Return the members of the configuration, which is on the disk from before a start."""
        return self._membership.expected()

    def why_away(self, node_id: str) -> str:
        """Return why a member is away."""
        return self._membership.why_away(node_id)

    def why_out(self) -> str:
        """Return why this node is up no more."""
        return self._membership.why_out()

    def witnesses(self) -> list[Member]:
        """Return the members without data, up or not."""
        return self._membership.witnesses()

    def is_up(self, node_id: str) -> bool:
        """Whether a member is up, also one without data."""
        return self._membership.is_up_there(node_id)

    def can_vote_without(self, node_id: str) -> bool:
        """Whether the voters that are up can decide on changes of the cluster without a node."""
        return self._membership.can_vote_without(node_id)

    def unanswered(self) -> dict[str, str]:
        """Return the addresses that have no connection though one is wanted, and why."""
        wants = self._membership.wants
        return {address: why for address, why in self._peers.unanswered.items() if address in wants}

    def link_of(self, node_id: str) -> dict[str, int]:
        """Return the round trip time to a node, and what it has not acknowledged."""
        if node_id not in self._peers.up_ids():
            return {}
        peers = self._peers
        return {"round_trip_us": peers.round_trip_us(node_id), "backlog_bytes": peers.backlog_bytes(node_id)}

    def leads(self, partition: int) -> bool:
        """Whether this node leads the partition and serves it."""
        return self._replication.leads(partition)

    def knows_subscribers(self) -> bool:
        """Whether all others have told who has subscribed."""
        return self._state.routes_known

    def leader_open(self, partition: int) -> bool:
        """Whether the leader of the partition serves it."""
        return self._replication.leader_open(partition)

    def sequence(self, partition: int) -> int:
        """Return the sequence of the newest change of a partition that this node has."""
        return self._state.writer.sequence(partition)

    def figures(self) -> dict[str, int]:
        """Return the figures of this node's copies and comparisons."""
        replication = self._replication
        return {
            "damaged": replication.count(DAMAGED),
            "digest_checked": replication.digests.compared,
            "digest_different": replication.digests.different,
            "digest_passed_over": replication.digests.passed_over,
            "digest_round_us": replication.digests.round_us,
            "bytes_left": replication.copies.bytes_left(),
            "bytes_done": replication.copies.bytes_copied,
        }

    def owner_of(self, client_id: str) -> str:
        """Return the node that a client is connected to; only the leader of its partition knows it."""
        session = self._state.sessions.get(client_id)
        if session is None or session.connection is None:
            return ""
        remote = session.connection.remote
        return self._me.node_id if remote is None else remote.node_id

    def heals(self) -> list[dict[str, object]]:
        """Return the summaries of the newest heals, of all nodes."""
        return [dict(heal) for heal in self._heals.known]

    def evict(self, node_id: str, now: int) -> str:
        """Ask for a configuration in which a member is away until it is started again."""
        why_not = self._outside()
        if not why_not:
            self._membership.evict(node_id, now)
        return why_not

    def forget(self, node_id: str, now: int, force: bool = False) -> str:
        """Ask for the removal of a member that is away, or have this side of a split go on without it."""
        self._membership.forget(node_id, now, force)
        return ""

    def leave(self, node_id: str, now: int) -> str:
        """Have a member hand over its partitions and leave."""
        why_not = self._outside()
        if not why_not:
            self._membership.dismiss(node_id, now)
        return why_not

    def is_told_to_leave(self, node_id: str) -> bool:
        """Whether a member leaves, or this node is about to have it leave."""
        return self._membership.is_told_to_leave(node_id)

    def stay(self, node_id: str, now: int) -> str:
        """Take the leave of a member back."""
        why_not = self._outside()
        if not why_not:
            self._membership.stay(node_id, now)
        return why_not

    def _outside(self) -> str:
        state = self._membership.state
        is_up = state in ("member", "witness")
        return "" if is_up else f"this node is not up in the cluster ({state}): ask another one"


def picture_of(node: Node) -> Picture:
    """Return the source of a node's status."""
    cluster_node = node.cluster_node
    config = node.config.cluster
    if cluster_node is None or config is None:
        return AlonePicture(node)
    heals = cluster_node.heal_log.heals
    return ClusterPicture(
        cluster_node.me,
        config,
        cluster_node.membership,
        cluster_node.peers,
        cluster_node.replication,
        cluster_node.state,
        heals,
    )
