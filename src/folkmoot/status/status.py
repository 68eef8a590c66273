"""The status of a node and of its cluster as plain values for JSON, computed from a picture.

Owns the names of the fields, and the definitions of under-replicated, ready, and safe to stop. It changes nothing.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.hash import hash64
from folkmoot.membership.loss import named
from folkmoot.peer.member import LEAVING, Member
from folkmoot.status.picture import ALONE, MEMBER, WITNESS, Picture
from folkmoot.status.risk import evict_risk, forget_risk, unsafe_forget, witness_forget
from folkmoot.status.shortage import caution, full_disks, has_full_disk, refusing, slow_disks, stranded
from folkmoot.status.wait import wait_of

__all__ = ["NodeStatus"]

_AWAY: Final = "away"


class NodeStatus:
    """Answers about one node. Ids are text, times are microseconds since 1970, sizes are bytes."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        # since it became a member: later copies are partitions that move here, not its own start
        self._had_data = False

    def status(self) -> dict[str, object]:
        """Return the complete status."""
        picture = self.picture
        view = picture.view()
        figures = picture.figures()
        heals = picture.heals()
        own = None if view is None else view.member(picture.node_id())
        return {
            "node": picture.node_id(),
            "software": picture.software() if own is None else picture.software_of(own),
            "epoch": 0 if view is None else view.epoch,
            "counter": picture.counter(),
            "controller": picture.controller(),
            "voters": picture.voters(),
            "lineage": f"{picture.lineage():x}",
            "forks_left": picture.forks_left(),
            "state": picture.state(),
            "waits": wait_of(picture),
            "policy": picture.policy(),
            "writable": picture.state() == ALONE or (picture.state() == MEMBER and picture.has_lease()),
            "overload": self._overload(),
            "overload_why": picture.overload_why(),
            "clock_offset_us": picture.clock_offset_us(),
            "features": picture.lacking(),
            "settings_differ": picture.disagreements(),
            "disks_full": full_disks(picture),
            "disks_slow": slow_disks(picture),
            "replicas": picture.replicas(),
            "nodes": self._nodes(),
            "partitions": self._partition_figures(figures),
            "copy": self._copying(figures),
            "apart": view is not None and not view.is_trunk and not view.is_whole(),
            "copies_missing": [] if view is None else _listed(view.losses.groups()),
            "copies_too_few": [] if view is None else view.scarce(picture.min_in_sync()),
            "copies_damaged": [] if view is None else _listed(view.losses.damage()),
            "last_loss": view.losses.past[-1].fields() if view is not None and view.losses.past else None,
            "last_heal": heals[-1] if heals else None,
        }

    def _overload(self) -> int:
        """Return the level by which publishers are slowed down: the highest of all members."""
        view = self.picture.view()
        members = [] if view is None else [member.node_id for member in view.members]
        return max([self.picture.load_of(node_id).get("overload", 0) for node_id in [self.picture.node_id(), *members]])

    def _copying(self, figures: dict[str, int]) -> dict[str, object]:
        """Return the progress of copies: bytes_left, bytes_done of those to this node; all_left, all_rate of all nodes.

        Leaders estimate what is left from the sizes on their disks.
        """
        picture = self.picture
        view = picture.view()
        left = 0
        rate = 0
        for member in [] if view is None else view.members:
            load = picture.load_of(member.node_id)
            left += load.get("copy_left", 0)
            rate += load.get("copy_rate", 0)
        return {
            "bytes_left": figures.get("bytes_left", 0),
            "bytes_done": figures.get("bytes_done", 0),
            "all_left": left,
            "all_rate": rate,
        }

    def _nodes(self) -> list[dict[str, object]]:
        """Return all members and absent nodes, sorted by id."""
        picture = self.picture
        view = picture.view()
        members = [] if view is None else view.members
        leads: dict[str, int] = {}
        follows: dict[str, int] = {}
        fills: dict[str, int] = {}
        for partition in range(picture.partitions() if members and not self.outside() else 0):
            replicas = picture.replicas_of(partition)
            for i in range(len(replicas)):
                counts = follows if i else leads
                counts[replicas[i]] = counts.get(replicas[i], 0) + 1
            for node_id in picture.learners_of(partition):
                fills[node_id] = fills.get(node_id, 0) + 1
        found: dict[str, dict[str, object]] = {}
        for member in members:
            entry = self._member(member)
            entry["leads"] = leads.get(member.node_id, 0)
            entry["follows"] = follows.get(member.node_id, 0)
            entry["fills"] = fills.get(member.node_id, 0)
            found[member.node_id] = entry
        last_seen: dict[str, Member] = {}
        if view is not None:
            for member in view.absent:
                last_seen[member.node_id] = member
        for node_id in picture.known():
            if node_id not in found:
                found[node_id] = self._away(node_id, last_seen.get(node_id))
        for witness in picture.witnesses():
            node_id = witness.node_id
            entry = self._away(node_id, witness)
            if picture.is_up(node_id):
                entry.update(self._member(witness))
                if witness.state != LEAVING:
                    entry["state"] = WITNESS
            found[node_id] = entry
        return [found[node_id] for node_id in sorted(found)]

    def _member(self, member: Member) -> dict[str, object]:
        link = self.picture.link_of(member.node_id)
        load = self.picture.load_of(member.node_id)
        state = "leaving" if member.state == LEAVING else "active"
        return {
            "id": member.node_id,
            "incarnation": member.incarnation,
            "zone": member.zone,
            "state": state,
            "why": "",
            "voter": member.node_id in self.picture.voters(),
            "software": self.picture.software_of(member),
            "address": member.address,
            "clients": load.get("clients", 0),
            "sessions": load.get("sessions", 0),
            "overload": load.get("overload", 0),
            "memory": load.get("memory", 0),
            "clock": load.get("clock", 0),
            "copy_left": load.get("copy_left", 0),
            "copy_rate": load.get("copy_rate", 0),
            "disk_full": has_full_disk(self.picture, member.node_id),
            "round_trip_us": link.get("round_trip_us", 0),
            "backlog_bytes": link.get("backlog_bytes", 0),
            "last_heard_us": self.picture.last_heard_us(member.node_id),
        }

    def _away(self, node_id: str, member: Member | None) -> dict[str, object]:
        """Return the entry of an absent node; `member` is its last known state.

        One that leaves is shown as leaving until it is removed, by itself or because others have taken over.
        """
        leaves = member is not None and member.state == LEAVING
        return {
            "id": node_id,
            "incarnation": 0 if member is None else member.incarnation,
            "zone": "" if member is None else member.zone,
            "state": "leaving" if leaves else _AWAY,
            "why": self.picture.why_away(node_id),
            "voter": node_id in self.picture.voters(),
            "software": "" if member is None else self.picture.software_of(member),
            "address": "" if member is None else member.address,
            "clients": 0,
            "sessions": 0,
            "overload": 0,
            "memory": 0,
            "clock": 0,
            "copy_left": 0,
            "copy_rate": 0,
            "disk_full": has_full_disk(self.picture, node_id),
            "round_trip_us": 0,
            "backlog_bytes": 0,
            "last_heard_us": self.picture.last_heard_us(node_id),
            "leads": 0,
            "follows": 0,
            "fills": 0,
        }

    def _partition_figures(self, figures: dict[str, int]) -> dict[str, object]:
        picture = self.picture
        total = picture.partitions()
        there = picture.view() is not None and not self.outside()  # else the roles are outdated
        opened = 0
        under = 0
        moving = 0
        wanted = picture.replicas()
        serves = picture.state() != MEMBER or picture.has_lease()
        for partition in range(total if there else 0):
            if picture.state() == WITNESS:  # it is told who leads, and no more
                opened += int(len(picture.replicas_of(partition)) > 0)
            elif serves and picture.leader_open(partition):
                opened += 1
            if len(picture.replicas_of(partition)) < wanted:
                under += 1
            if picture.learners_of(partition):
                moving += 1
        return {
            "total": total,
            "open": opened,
            "under_replicated": under if there else total,
            "moving": moving,
            "refusing": len(refusing(picture, full_disks(picture))) if there else 0,
            "damaged": figures.get("damaged", 0),
            "digest_checked": figures.get("digest_checked", 0),
            "digest_different": figures.get("digest_different", 0),
            "digest_passed_over": figures.get("digest_passed_over", 0),
            "digest_round_us": figures.get("digest_round_us", 0),
        }

    def partitions(self) -> list[dict[str, object]]:
        """Return one entry for each partition; `sequence` is that of this node's own copy.

        refuses: the disk of its leader is full, so it takes no messages that must be stored.
        """
        picture = self.picture
        view = picture.view()
        if view is None:
            return []
        found: list[dict[str, object]] = []
        full = full_disks(picture)
        for partition in range(picture.partitions()):
            replicas = picture.replicas_of(partition)
            leader = replicas[0] if replicas else None
            state = "elsewhere"
            if leader == picture.node_id():
                state = "open" if picture.leads(partition) else "opening"
            found.append(
                {
                    "partition": partition,
                    "leader": leader,
                    "replicas": list(replicas),
                    "learners": list(picture.learners_of(partition)),
                    "epoch": view.epoch,
                    "sequence": picture.sequence(partition),
                    "state": state,
                    "refuses": leader in full,
                }
            )
        return found

    def where_client(self, client_id: str) -> dict[str, object]:
        """Return the nodes that have a client's session, and the node that it is connected to."""
        found = self._where("client", client_id)
        found["owner"] = self.picture.owner_of(client_id) or None
        return found

    def where_topic(self, topic: str) -> dict[str, object]:
        """Return the nodes that have the retained message of a topic."""
        return self._where("topic", topic)

    def _where(self, kind: str, name: str) -> dict[str, object]:
        partition = hash64(name.encode()) % self.picture.partitions()
        replicas = [] if self.picture.view() is None else self.picture.replicas_of(partition)
        return {
            "kind": kind,
            "name": name,
            "partition": partition,
            "leader": replicas[0] if replicas else None,
            "followers": replicas[1:],
            "owner": None,
        }

    def safe_to_stop(self, node_id: str) -> dict[str, object] | None:
        """Return whether a node can be stopped so that no partition has fewer copies than one planned stop leaves.

        That is `replicas` - 1 of the partitions of this node. While another node is absent, the answer is yes once
        enough others have been filled in its place, and no before: with as many nodes as copies, until it returns.
        Voters are no reason for a node with data: votes end before its process does, if those that run on would be no
        quorum (`membership/voters`). None: no such node.
        """
        picture = self.picture
        view = picture.view()
        member = None if view is None else view.member(node_id)
        if self._is_witness(node_id):
            if picture.is_up(node_id) and not picture.can_vote_without(node_id):
                return _answer(node_id, False, "the other voters are no quorum without it", [])
            return _answer(node_id, True, "it holds no data, and the other voters are a quorum", [])
        if view is None or member is None:
            if node_id not in picture.known():
                return None
            return _answer(node_id, True, "it is not up: no node waits for it", [])
        if picture.state() not in (ALONE, MEMBER, WITNESS):
            return _answer(node_id, False, self.outside(), [])
        if not picture.has_lease():
            return _answer(node_id, False, wait_of(picture), [])
        return self._copies_left(node_id)

    def _copies_left(self, node_id: str) -> dict[str, object]:
        picture = self.picture
        least = max(min(picture.replicas(), len(picture.known())) - 1, 1)
        only: list[int] = []
        few: list[int] = []
        for partition in range(picture.partitions()):
            replicas = picture.replicas_of(partition)
            if node_id not in replicas:
                continue
            left = len(replicas) - 1
            if left == 0:
                only.append(partition)
            elif left < least or not picture.leader_open(partition):
                few.append(partition)
        if only:
            return _answer(node_id, False, f"it has the only copy of {named(only)}", only)
        if few:
            return _answer(node_id, False, f"other copies of {named(few)} are missing or not open yet", few)
        alone = stranded(picture, node_id, full_disks(picture))
        if alone:
            return _answer(node_id, False, f"the disks with the other copies of {named(alone)} are full", alone)
        return _answer(node_id, True, "other nodes have copies of all its partitions", [])

    def heals(self) -> list[dict[str, object]]:
        """Return the summaries of heals, the newest last."""
        return self.picture.heals()

    def unready(self) -> str:
        """Return why clients should use another node for now; "" when this one has its data and serves it."""
        picture = self.picture
        state = picture.state()
        view = picture.view()
        member = None if view is None else view.member(picture.node_id())
        if state in (ALONE, WITNESS):
            return ""
        if state != MEMBER:
            self._had_data = False
        waits = wait_of(picture)
        if waits or member is None:
            return waits or "it waits to become a member of the cluster"
        if member.state == LEAVING:
            return "it is leaving the cluster"
        opening = 0
        fills = 0
        for partition in range(picture.partitions()):
            replicas = picture.replicas_of(partition)
            if replicas and replicas[0] == picture.node_id() and not picture.leads(partition):
                opening += 1
            if picture.node_id() in picture.learners_of(partition):
                fills += 1
        if fills and not self._had_data:
            return f"it is being filled: {fills} partitions to go"
        if opening:
            return f"it is taking over {opening} partitions"
        if not picture.knows_subscribers():
            return "it waits for other nodes, which open partitions, to hear who has subscribed there"
        self._had_data = True
        return ""

    def caution(self) -> str:
        """Return the warnings of a node that serves: full disks, and what they refuse; "" when there are none."""
        return caution(self.picture)

    def evict(self, node_id: str, now: int, force: bool = False) -> str:
        """Evict a member; return why not, or "" when it is under way. `force`: despite the consequences."""
        if self.known(node_id) and not self.picture.is_up(node_id):
            return f"{node_id} is away already"
        risk = "" if force else evict_risk(self.picture, node_id)
        return self._unknown(node_id) or risk or self.picture.evict(node_id, now)

    def forget(self, node_id: str, now: int, force: bool = False) -> str:
        """Forget an absent node; return why not, or "" when it is under way. `force`: despite the consequences.

        Without a lease this node cannot know who is up: only by force, not one that it hears, and never as a witness.
        """
        if self.picture.state() != ALONE and self.known(node_id):
            if not self.picture.has_lease() and not self.picture.hears(node_id):
                if self._is_witness(self.picture.node_id()):
                    return witness_forget(self.picture.node_id(), node_id)
                return self.picture.forget(node_id, now, True) if force else self.outside() or unsafe_forget(node_id)
            if self.picture.is_up(node_id):
                return f"{node_id} is up: stop or evict it first"
        risk = "" if force else forget_risk(self.picture, node_id)
        return self._unknown(node_id) or risk or self.picture.forget(node_id, now, force)

    def leave(self, node_id: str, now: int) -> str:
        """Have a member hand over its partitions and leave; return why not, or "" when it is under way."""
        view = self.picture.view()
        member = None if view is None else view.member(node_id)
        if self.picture.state() != ALONE and view is not None and self.known(node_id):
            if self._is_witness(node_id):
                return self.picture.leave(node_id, now)
            if member is None:
                return (
                    f"{node_id} is absent or evicted, and cannot hand over its partitions: start it again, or forget it"
                )
            stay = [other for other in view.members if other.state != LEAVING and other.node_id != node_id]
            if not stay:
                return f"{node_id} is the only remaining node: no other can take its partitions. Stop it instead"
            least = self.picture.min_in_sync()
            if member.state != LEAVING and len(stay) < least:
                names = " and ".join([other.node_id for other in stay])
                cost = f"only {names} would be left, and cluster.min_in_sync is {least}: nothing would be served"
                return f"{cost}. Let another node join first, or lower cluster.min_in_sync on all nodes"
        return self._unknown(node_id) or self.picture.leave(node_id, now)

    def stay(self, node_id: str, now: int) -> str:
        """Take the leave of a member back; return why not, or "" when it is under way."""
        if self.known(node_id) and not self._leaves(node_id) and not self.picture.is_told_to_leave(node_id):
            return f"{node_id} was not told to leave"
        return self._unknown(node_id) or self.picture.stay(node_id, now)

    def _leaves(self, node_id: str) -> bool:
        view = self.picture.view()
        members = [] if view is None else [*view.members, *view.absent]
        for member in [*members, *self.picture.witnesses()]:
            if member.node_id == node_id:
                return member.state == LEAVING
        return False

    def known(self, node_id: str) -> bool:
        """Whether a node is a member, or an absent node that is expected back."""
        view = self.picture.view()
        known = node_id in self.picture.known() or (view is not None and view.member(node_id) is not None)
        return known or node_id in self.picture.expected() or self._is_witness(node_id)

    def _is_witness(self, node_id: str) -> bool:
        return node_id in [witness.node_id for witness in self.picture.witnesses()]

    def outside(self) -> str:
        """Return why this node cannot give orders to a cluster of which it is no member; "" when it can."""
        state = self.picture.state()
        if state in (ALONE, MEMBER, WITNESS):
            return ""
        return f"node {self.picture.node_id()} is not up in the cluster ({state}): ask another one"

    def _unknown(self, node_id: str) -> str:
        return "" if self.known(node_id) else f"there is no node {node_id!r} in this cluster"


def _listed(groups: list[tuple[list[str], list[int]]]) -> list[dict[str, object]]:
    """Return the partitions that are not served, by the nodes that have the only copies."""
    return [{"nodes": list(nodes), "partitions": partitions} for nodes, partitions in groups]


def _answer(node_id: str, safe: bool, why: str, partitions: list[int]) -> dict[str, object]:
    return {"node": node_id, "safe": safe, "why": why, "partitions": partitions}
