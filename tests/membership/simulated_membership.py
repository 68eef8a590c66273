"""A simulated gathering of membership cores: virtual time, links that delay, cut and heal, nodes that die and hang.

The links between nodes behave as the real ones do: messages to a peer arrive in order and once, also over a cut, as
long as both processes live; a killed process is noticed by a refused redial, a cut one by silence. A small model of
replication stands under it: committed changes bump the position of all replicas at once, learners are filled after a
while. After every installed view the properties of agreement and of placement are checked.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from folkmoot.kernel.rng import Rng
from folkmoot.membership.divergence import YES, has_change
from folkmoot.membership.holding import COMPLETE, NONE, PARTIAL, Holding
from folkmoot.membership.member_state import HoldingsSource
from folkmoot.membership.membership import Membership
from folkmoot.membership.view import View
from folkmoot.membership.view_format import decode_view, encode_view
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import HEARTBEAT
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.store.epoch import counter_of

MS = 1000
S = 1_000_000


def contains(holder: Holding, epoch: int, seq: int) -> bool:
    """Tell whether a copy has a change for certain."""
    return has_change(holder, epoch, seq) == YES


class Node(HoldingsSource):
    """One machine: its disk (view, holdings) outlives its process."""

    def __init__(self, simulation: SimulatedMembership, number: int) -> None:
        self.simulation = simulation
        self.node_id = f"n{number:03}"
        self.address = f"192.0.2.{number}:7000"
        self.zone = self.node_id
        self.incarnation = 0
        self.alive = False
        self.hung = False
        self.seeds: list[str] = []
        self.core: Membership | None = None
        self.stored: View | None = None
        self.newest = 0  # the newest epoch installed, one without a majority too
        self.has: list[Holding] = [Holding(NONE, 0, 0, []) for _ in range(simulation.partitions)]
        self.said: dict[int, list[Holding]] = {}  # by the epoch that it promised
        self.events: list[str] = []
        self.wire = (1, 1)
        self.waiting: list[tuple[str, int, int, bytes]] = []  # came while it hung
        self.due = 0

    def holdings(self) -> list[Holding]:
        said = [Holding(one.state, one.epoch, one.seq, list(one.history)) for one in self.has]
        self.said[self.live._member_state.promised] = said
        return said

    @property
    def live(self) -> Membership:
        assert self.core is not None
        return self.core


class SimulatedMembership:
    """The world."""

    def __init__(
        self, nodes: int, seed: int, partitions: int = 16, replicas: int = 3, policy: str = "available"
    ) -> None:
        self.rng = Rng(seed)
        self.partitions = partitions
        self.replicas = replicas
        self.policy = policy
        self.now = 1_000_000_000
        self.delay = (200, 2 * MS)
        self.nodes = {f"n{number:03}": Node(self, number) for number in range(nodes)}
        self.by_address = {node.address: node for node in self.nodes.values()}
        self.cut: set[tuple[str, str]] = set()  # directed
        self.slow: dict[tuple[str, str], tuple[int, int]] = {}
        self.links: dict[tuple[str, str], tuple[int, int]] = {}  # sorted pair -> incarnations
        self.noticed: dict[tuple[str, str], bool] = {}
        self.last: dict[tuple[str, str], int] = {}
        self.held: dict[tuple[str, str], list[tuple[int, int, int, bytes]]] = {}
        self.heap: list[tuple[int, int, str, list[object]]] = []
        self.count = 0
        self.views: dict[int, bytes] = {}
        self.decoded: dict[int, View] = {}
        self.installed: dict[tuple[str, int], list[int]] = {}
        self.commits: dict[int, list[tuple[int, int]]] = {}
        self.sent: dict[int, int] = {}
        self.waits: dict[tuple[str, int, int], list[str]] = {}
        self.fill_us = 50 * MS
        self.pump = 20 * MS
        self.lose_kind: tuple[str, int] | None = None  # kill the node that sends this kind
        self._at(self.now, "dial", [])

    # Faults

    def start(self, node_id: str, seeds: list[str] | None = None, empty: bool = False) -> None:
        node = self.nodes[node_id]
        assert not node.alive
        node.incarnation += 1
        if empty:
            node.stored = None
            node.has = [Holding(NONE, 0, 0, []) for _ in range(self.partitions)]
            for partition, commits in self.commits.items():  # more than the promise allows may be gone with this disk
                self.commits[partition] = [one for one in commits if self._somewhere(partition, one)]
        if seeds is not None:
            node.seeds = [self.nodes[seed].address for seed in seeds]
        config = ClusterConfig()
        config.peer_address = node.address
        config.seeds = node.seeds
        config.replicas = self.replicas
        config.split_policy = self.policy
        config.partitions = self.partitions
        me = Member(node_id, node.incarnation, node.address, node.zone, ACTIVE, node.wire[0], node.wire[1], "1")
        stored = None if node.stored is None else decode_view(encode_view(node.stored))
        node.core = Membership(me, config, self.partitions, self.rng.fork(), node, stored)
        node.alive = True
        node.hung = False
        node.waiting = []
        node.due = self.now + self.rng.below(50 * MS)
        self._at(node.due, "wake", [node_id, node.incarnation])

    def start_all(self, ids: list[str] | None = None) -> None:
        ids = sorted(self.nodes) if ids is None else ids
        for node_id in ids:
            self.start(node_id, [one for one in ids[:3] if one != node_id])

    def kill(self, node_id: str) -> None:
        node = self.nodes[node_id]
        node.alive = False
        node.core = None
        for pair in sorted(self.links):
            if node_id in pair:
                other = pair[0] if pair[1] == node_id else pair[1]
                incarnations = self.links[pair]
                mine = incarnations[pair.index(node_id)]
                self._drop(pair)
                # The other end sees the connection close, dials again, and is refused: if the network lets it.
                if (node_id, other) not in self.cut and (other, node_id) not in self.cut:
                    self._at(self.now + self._delay(node_id, other) * 3, "refused", [other, node_id, mine])
                else:
                    self.noticed[pair] = True

    def hang(self, node_id: str) -> None:
        self.nodes[node_id].hung = True

    def go_on(self, node_id: str) -> None:
        node = self.nodes[node_id]
        node.hung = False
        waiting, node.waiting = node.waiting, []
        # The loop looks at its timers before it reads its sockets.
        self._wake(node)
        for sender, incarnation, kind, body in waiting:
            self._deliver(sender, incarnation, node_id, node.incarnation, kind, body)

    def split(self, *groups: list[str]) -> None:
        for one in self.nodes:
            for other in self.nodes:
                together = [group for group in groups if one in group and other in group]
                if one != other and not together:
                    self.cut.add((one, other))

    def cut_link(self, one: str, other: str) -> None:
        self.cut |= {(one, other), (other, one)}

    def lose(self, sender: str, receiver: str, kind: int) -> bool:
        """Lose what is on its way, and have both hear that their link is a new one; tell whether there was any."""
        lost = [entry for entry in self.heap if entry[2] == "deliver" and entry[3][::2] == [sender, receiver, kind]]
        for entry in lost:
            self.heap.remove(entry)
        heapify(self.heap)
        for node_id, other_id in ((sender, receiver), (receiver, sender)) if lost else ():
            self.nodes[node_id].live.renewed(other_id)
            self._after(self.nodes[node_id])
        return bool(lost)

    def heal(self) -> None:
        self.cut = set()
        self.slow = {}
        for (sender, receiver), held in sorted(self.held.items()):
            for sender_incarnation, receiver_incarnation, kind, body in held:
                self._ship(sender, sender_incarnation, receiver, receiver_incarnation, kind, body)
        self.held = {}

    # Time

    def run(self, duration: int) -> None:
        until = self.now + duration
        while self.heap and self.heap[0][0] <= until:
            at, _count, what, arguments = heappop(self.heap)
            self.now = max(self.now, at)
            getattr(self, "_on_" + what)(*arguments)
        self.now = until

    def run_until(self, condition: object, limit: int) -> int:
        """Run until the condition holds; return how long it took."""
        began = self.now
        while not condition():  # type: ignore[operator]
            assert self.now - began < limit, f"not within {limit / S} s\n{self.picture()}"
            self.run(5 * MS)
        return self.now - began

    def _at(self, at: int, what: str, arguments: list[object]) -> None:
        self.count += 1
        heappush(self.heap, (at, self.count, what, arguments))

    def _delay(self, sender: str, receiver: str) -> int:
        low, high = self.slow.get((sender, receiver), self.delay)
        return self.rng.between(low, high)

    # Links

    def _on_dial(self) -> None:
        self._at(self.now + self.pump, "dial", [])
        for node in self.nodes.values():
            if not node.alive or node.hung:
                continue
            for address in node.live.wants:
                other = self.by_address.get(address)
                if other is None or not other.alive or other.hung or other is node:
                    continue
                pair = (min(node.node_id, other.node_id), max(node.node_id, other.node_id))
                if (
                    pair in self.links
                    or (node.node_id, other.node_id) in self.cut
                    or pair[::-1] in self.cut
                    or pair in self.cut
                ):
                    continue
                self.links[pair] = (self.nodes[pair[0]].incarnation, self.nodes[pair[1]].incarnation)
                for one, two in (pair, pair[::-1]):
                    self._at(self.now + self._delay(one, two), "up", [one, two, self.links[pair]])

    def _on_up(self, node_id: str, other_id: str, incarnations: tuple[int, int]) -> None:
        pair = (min(node_id, other_id), max(node_id, other_id))
        node = self.nodes[node_id]
        other = self.nodes[other_id]
        if self.links.get(pair) != incarnations or not node.alive or not other.alive:
            return
        if node.hung:
            self._at(self.now + self.pump, "up", [node_id, other_id, incarnations])
            return
        member = Member(
            other_id, other.incarnation, other.address, other.zone, ACTIVE, other.wire[0], other.wire[1], "1"
        )
        node.live.up(member, self.now)
        self._after(node)

    def _on_refused(self, node_id: str, gone: str, incarnation: int) -> None:
        node = self.nodes[node_id]
        if not node.alive:
            return
        if node.hung:
            self._at(self.now + self.pump, "refused", [node_id, gone, incarnation])
            return
        node.live.down(gone, incarnation, True, self.now)
        self._after(node)

    def _drop(self, pair: tuple[str, str]) -> None:
        self.links.pop(pair, None)
        for direction in (pair, pair[::-1]):
            self.held.pop(direction, None)

    def _ship(self, sender: str, from_: int, receiver: str, to: int, kind: int, body: bytes) -> None:
        at = max(self.last.get((sender, receiver), 0), self.now + self._delay(sender, receiver))
        self.last[(sender, receiver)] = at
        self._at(at, "deliver", [sender, from_, receiver, to, kind, body])

    def _on_deliver(self, sender: str, from_: int, receiver: str, to: int, kind: int, body: bytes) -> None:
        if (sender, receiver) in self.cut:
            self.held.setdefault((sender, receiver), []).append((from_, to, kind, body))
            return
        self._deliver(sender, from_, receiver, to, kind, body)

    def _deliver(self, sender: str, from_: int, receiver: str, to: int, kind: int, body: bytes) -> None:
        node = self.nodes[receiver]
        pair = (min(sender, receiver), max(sender, receiver))
        wanted = (from_, to) if pair[0] == sender else (to, from_)
        if not node.alive or node.incarnation != to or self.links.get(pair) != wanted:
            return
        if node.hung:
            node.waiting.append((sender, from_, kind, body))
            return
        node.live.receive(sender, kind, body, self.now)
        self._after(node)

    def _on_wake(self, node_id: str, incarnation: int) -> None:
        node = self.nodes[node_id]
        if not node.alive or node.incarnation != incarnation:
            return
        if node.hung:
            self._at(self.now + 10 * MS, "wake", [node_id, incarnation])
            return
        if node.due > self.now:
            return  # it was set again
        self._wake(node)

    def _wake(self, node: Node) -> None:
        node.live.wake(self.now)
        self._after(node)

    def _after(self, node: Node) -> None:
        """Take what a core has to say."""
        core = node.live
        out, installs = list(core.out), list(core.installs)
        core.out.clear()
        core.installs.clear()
        node.events += [repr(event) for event in core.events]
        core.events.clear()
        for view in installs:
            self._installed(node, view)
        for receiver, kind, body in out:
            if self.lose_kind == (node.node_id, kind) and self.rng.chance(1, 2):
                self.lose_kind = None
                self.kill(node.node_id)
                return
            self.sent[kind] = self.sent.get(kind, 0) + 1
            pair = (min(node.node_id, receiver), max(node.node_id, receiver))
            if pair in self.links:
                to = self.links[pair][pair.index(receiver)]
                self._ship(node.node_id, node.incarnation, receiver, to, kind, body)
        due = core.next_wake()
        if due != node.due or due <= self.now:
            node.due = max(due, self.now + 1)
            self._at(node.due, "wake", [node.node_id, node.incarnation])

    # Checks

    def _installed(self, node: Node, view: View) -> None:
        data = encode_view(view)
        first = view.epoch not in self.views
        assert self.views.setdefault(view.epoch, data) == data, "an epoch has two views"
        chain = self.installed.setdefault((node.node_id, node.incarnation), [])
        number = counter_of(view.epoch)
        assert not chain or counter_of(chain[-1]) < number, "views go back, or two have the same number"
        if node.stored is not None:
            assert counter_of(node.stored.epoch) < number, "a view is older than the one on disk"
        newest = node.newest
        node.newest = view.epoch
        live = node.live._member_state.is_live(view)
        if first:
            self.decoded[view.epoch] = view
            if live:
                self._check_placement(view)
        if not live:
            return  # copies stay as they are
        self._check_sequence(node, chain, view, newest)
        chain.append(view.epoch)
        node.stored = view
        self._play_roles(node, view)

    def _check_sequence(self, node: Node, chain: list[int], view: View, newest: int) -> None:
        """All who install two views install those between them of which they are members.

        One that was out of touch is told of the last view before, if it is a member of that, and not of all before.
        newest: the epoch it had, perhaps of a view without a majority; it goes back to none before that.
        """
        if not chain:
            return
        before = chain[-1]
        for (other_id, incarnation), epochs in self.installed.items():
            if other_id == node.node_id or before not in epochs or view.epoch not in epochs:
                continue
            for epoch in epochs[max(0, epochs.index(view.epoch) - 1) :]:
                member = self.decoded[epoch].member(node.node_id)
                if (
                    max(before, newest) < epoch < view.epoch
                    and member is not None
                    and member.incarnation == node.incarnation
                ):
                    raise AssertionError(f"{node.node_id} missed {epoch} that {other_id}#{incarnation} installed")

    def _check_placement(self, view: View) -> None:
        ids = [member.node_id for member in view.members]
        for partition in range(self.partitions):
            replicas = view.replicas[partition]
            assert replicas, "a partition without a leader"
            assert len({*replicas, *view.learners[partition]}) == len(replicas) + len(view.learners[partition])
            assert {*replicas, *view.learners[partition]} <= set(ids)
            assert len(replicas) <= min(self.replicas, len(ids))
            # By what they said when they promised; whoever died since has no disk to look at, or an emptied one.
            held = {one.node_id: self._said(one, view.epoch, partition) for one in view.members}
            for epoch, seq in self.commits.get(partition, []):
                having = [one for one in replicas if contains(held[one], epoch, seq)]
                lacking = [one for one in replicas if not contains(self.nodes[one].has[partition], epoch, seq)]
                lacking = [one for one in lacking if self.nodes[one].incarnation == self._of(view, one)]
                assert not having or not lacking, f"{partition}: {replicas} but only {having} have {epoch, seq}"
                if not having and len(lacking) == len(replicas):
                    for node_id in ids:
                        if contains(held[node_id], epoch, seq) and held[node_id].state == COMPLETE:
                            assert node_id in view.learners[partition], (
                                f"{partition}: {node_id} has {epoch, seq} and is left out of {view.epoch}"
                            )

    def _of(self, view: View, node_id: str) -> int:
        member = view.member(node_id)
        return -1 if member is None else member.incarnation

    def _said(self, member: Member, epoch: int, partition: int) -> Holding:
        node = self.nodes[member.node_id]
        return node.said[epoch][partition] if node.incarnation == member.incarnation else Holding(NONE, 0, 0, [])

    # A model of replication

    def _play_roles(self, node: Node, view: View) -> None:
        for partition in range(self.partitions):
            if node.node_id in view.replicas[partition] and node.has[partition].state != COMPLETE:
                assert node.has[partition].seq == 0, "a replica that is not complete, in a world without loss"
                node.has[partition].state = COMPLETE
            if node.node_id in view.learners[partition] and node.has[partition].state == NONE:
                node.has[partition].state = PARTIAL
            if view.leader_of(partition) == node.node_id:
                for learner in view.learners[partition]:
                    at = self.now + self.rng.between(self.fill_us // 2, self.fill_us * 2)
                    self._at(at, "fill", [node.node_id, node.incarnation, view.epoch, partition, learner])

    def _on_fill(self, leader_id: str, incarnation: int, epoch: int, partition: int, learner_id: str) -> None:
        leader = self.nodes[leader_id]
        learner = self.nodes[learner_id]
        pair = (min(leader_id, learner_id), max(leader_id, learner_id))
        if leader.incarnation != incarnation or leader.stored is None or leader.stored.epoch > epoch:
            now_learner = leader.stored is not None and learner_id in leader.stored.learners[partition]
            if not now_learner or leader.stored is None or leader.stored.leader_of(partition) != leader_id:
                return
        if not leader.alive or leader.hung or leader.live.state != "member":
            return
        apart = not learner.alive or learner.hung or pair not in self.links or {pair, pair[::-1]} & self.cut
        if apart or learner.stored is None or learner.stored.epoch != leader.stored.epoch:
            self._at(self.now + self.fill_us, "fill", [leader_id, incarnation, epoch, partition, learner_id])
            return
        source = self._adopted(leader, partition, leader.stored.replicas[partition])
        # What the learner had on another branch is merged into the leader's; the model forgets about it.
        self.commits[partition] = [one for one in self.commits.get(partition, []) if contains(source, *one)]
        learner.has[partition] = Holding(COMPLETE, source.epoch, source.seq, list(source.history))
        leader.live.filled(partition, learner_id, self.now)
        self.filled(leader, partition, learner_id)
        self._after(leader)

    def filled(self, leader: Node, partition: int, learner_id: str) -> None:
        """From now on the leader waits for this learner."""
        self.waits.setdefault((leader.node_id, leader.incarnation, partition), []).append(learner_id)

    def write(self, partition: int) -> bool:
        """Commit a change at every node that believes to lead the partition and whose replicas agree."""
        done = False
        for leader in self.nodes.values():
            if not leader.alive or leader.hung or leader.stored is None or leader.live.state != "member":
                continue
            view = leader.stored
            if view.leader_of(partition) != leader.node_id:
                continue
            waits = self.waits.get((leader.node_id, leader.incarnation, partition), [])
            wanted = view.replicas[partition] + [one for one in waits if one in view.learners[partition]]
            if not all(self._follows(leader, one, view, partition) for one in wanted):
                continue
            source = self._adopted(leader, partition, wanted)
            history = list(source.history)
            if not history or history[-1][0] != view.epoch:
                history.append((view.epoch, source.seq))
            for one in wanted:
                self.nodes[one].has[partition] = Holding(COMPLETE, view.epoch, source.seq + 1, history[-64:])
            self.commits.setdefault(partition, []).append((view.epoch, source.seq + 1))
            self.commits[partition] = self.commits[partition][-50:]
            done = True
        return done

    def _adopted(self, leader: Node, partition: int, replicas: list[str]) -> Holding:
        """Let a leader take over what the longest replica has."""
        best = leader.has[partition]
        for node_id in replicas:
            node = self.nodes[node_id]
            other = node.has[partition]
            if node.stored is None or leader.stored is None or node.stored.epoch != leader.stored.epoch:
                continue
            if other.seq > best.seq and other.state == COMPLETE and contains(other, best.epoch, best.seq):
                best = other
        leader.has[partition] = Holding(COMPLETE, best.epoch, best.seq, list(best.history))
        return leader.has[partition]

    def _follows(self, leader: Node, node_id: str, view: View, partition: int) -> bool:
        if node_id == leader.node_id:
            return True
        node = self.nodes[node_id]
        pair = (min(leader.node_id, node_id), max(leader.node_id, node_id))
        here = node.alive and not node.hung and pair in self.links and not {pair, pair[::-1]} & self.cut
        if not here or node.stored is None or node.stored.epoch != view.epoch:
            return False
        one, other = node.has[partition], leader.has[partition]
        return contains(other, one.epoch, one.seq) or contains(one, other.epoch, other.seq)

    def _somewhere(self, partition: int, commit: tuple[int, int]) -> bool:
        return any(contains(node.has[partition], *commit) for node in self.nodes.values())

    def lost(self) -> list[str]:
        """Return the committed changes that the leader of their partition has not, in a view that all are in."""
        view = next(node for node in self.nodes.values() if node.alive).live.view
        assert view is not None
        return [
            f"partition {partition}: {commit}"
            for partition, commits in sorted(self.commits.items())
            for commit in commits
            if not contains(self.nodes[view.leader_of(partition)].has[partition], *commit)
        ]

    # Looking

    def settled(self, ids: list[str] | None = None) -> bool:
        """Tell whether these nodes (all who live) are the members of one view, and nothing is left to fill."""
        ids = [one for one in sorted(self.nodes) if self.nodes[one].alive] if ids is None else ids
        epochs = set()
        for node_id in ids:
            core = self.nodes[node_id].live
            if core.state != "member" or core.view is None:
                return False
            epochs.add(core.view.epoch)
            if [member.node_id for member in core.view.members] != ids or any(core.view.learners):
                return False
        return len(epochs) == 1

    def agreed(self, ids: list[str]) -> bool:
        """Tell the same without regard to what is left to fill."""
        views = [self.nodes[one].live.view for one in ids if self.nodes[one].live.state == "member"]
        known = [view for view in views if view is not None]
        same = len(known) == len(ids) and len({view.epoch for view in known}) == 1
        return same and [member.node_id for member in known[0].members] == sorted(ids)

    def picture(self) -> str:
        lines = []
        for node in self.nodes.values():
            if node.core is None:
                lines.append(f"{node.node_id}: dead")
                continue
            view = node.core.view
            members = [] if view is None else [f"{one.node_id}#{one.incarnation}" for one in view.members]
            learners = 0 if view is None else sum(len(one) for one in view.learners)
            epoch = 0 if view is None else view.epoch
            lines.append(f"{node.node_id}#{node.incarnation}: {node.core.state} {epoch} {members} learners={learners}")
            lines += ["    " + event for event in node.events[-6:]]
        return "\n".join(lines)

    def control_messages(self) -> int:
        return sum(count for kind, count in self.sent.items() if kind != HEARTBEAT)


def trouble(simulation: SimulatedMembership, steps: int) -> None:
    """Do one thing after another to the nodes and links, and write all the time."""
    rng = simulation.rng.fork()
    ids = sorted(simulation.nodes)
    for _ in range(steps):
        node_id = ids[rng.below(len(ids))]
        other = ids[rng.below(len(ids))]
        node = simulation.nodes[node_id]
        what = rng.below(14)
        if what <= 1 and node.alive:
            simulation.kill(node_id)
        elif what <= 3 and not node.alive:
            simulation.start(node_id)
        elif what == 4 and node.alive and not node.hung:
            simulation.hang(node_id)
        elif what == 5 and node.alive and node.hung:
            simulation.go_on(node_id)
        elif what == 6 and node_id != other:
            simulation.cut_link(node_id, other)
        elif what == 7 and node_id != other:
            simulation.cut.add((node_id, other))
        elif what == 8:
            groups: list[list[str]] = [[], [], []]
            for one in ids:
                groups[rng.below(3 if rng.chance(1, 3) else 2)].append(one)
            simulation.split(*groups)
        elif what == 9:
            simulation.heal()
        elif what == 10 and node_id != other:
            simulation.slow[(node_id, other)] = (100 * MS, 1500 * MS)
        elif what == 11:
            simulation.lose_kind = (node_id, rng.between(2, 6))
        elif what == 12 and not node.alive and rng.chance(1, 3):
            simulation.start(node_id, empty=True)
        pause = 3 * S if rng.chance(1, 4) else 300 * MS
        end = simulation.now + rng.below(pause)
        while simulation.now < end:
            simulation.run(min(end - simulation.now, 40 * MS))
            simulation.write(rng.below(simulation.partitions))


def recover(simulation: SimulatedMembership, limit: int) -> int:
    """End all trouble; return how long it took until all nodes are in one view with all copies."""
    simulation.heal()
    simulation.lose_kind = None
    for node_id, node in sorted(simulation.nodes.items()):
        if node.alive and node.hung:
            simulation.go_on(node_id)
        if not node.alive:
            simulation.start(node_id)
    return simulation.run_until(simulation.settled, limit)
