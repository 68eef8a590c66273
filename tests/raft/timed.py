"""Members with clocks, delays and links: liveness, stability and leases, in any topology of links.

A run has two parts. First faults of all kinds follow each other: links cut both ways or one way, loss, crashes,
processes that stand still for a while, changes of the configuration, handovers. In some runs, writes take longer than
an election timeout; in others, members are started again with shorter times, or the disk of a new leader stands still
as soon as it is elected. Then the links stay as they are,
nothing else happens, and the cluster has to make progress if one of its voters is connected to a quorum.

Times are in units of which an election timeout has 1000.
"""

from __future__ import annotations

from heapq import heappop, heappush

from folkmoot.raft.configuration import ADD_LEARNER, DEMOTE, PROMOTE, REMOVE, Configuration
from folkmoot.raft.message import Message
from folkmoot.raft.option import Options
from folkmoot.raft.role import LEADER
from tests.raft.world import Checker, Dice, Node, Violation

__all__ = ["ELECTION", "HEARTBEAT", "PROGRESS_WITHIN", "TOPOLOGIES", "WRITES", "Timed"]

ELECTION = 1000
HEARTBEAT = 200
CLIENT_PAUSE = 100
PROGRESS_WITHIN = 20 * ELECTION
WRITE = 6 * ELECTION  # longer than any write but for those of a disk that stands still
WRITES = 8  # besides timeouts: an election takes no longer than so many writes
STABLE_FOR = 6 * ELECTION

TOPOLOGIES = ["full", "random", "one_way", "quorum_loss", "constrained", "chained", "bridge", "ring", "rejoin"]

ARRIVAL, WAKE, DISK, CLIENT = range(4)


class Event:
    """Something that happens to a member at a time."""

    def __init__(self, kind: int, me: int, start: int, message: Message | None) -> None:
        self.kind = kind
        self.me = me
        self.start = start  # which process of the member it concerns
        self.message = message


class Timed:
    """One run."""

    def __init__(self, seed: int, planted: list[str]) -> None:
        self.rng = Dice(seed)
        rng = self.rng
        self.checker = Checker()
        self.kept_entries = rng.below(8)
        self.settings = Dice(seed + 2_000_003)  # from dice of their own, so that other runs stay as they are
        self.is_mixed = self.settings.chance(1, 4)  # members get other settings
        self.is_faster = False  # those that start now have shorter times
        self.stalled: int = 0  # the member whose disk stands still; 0: none does
        founders = list(range(1, (4, 6, 4, 6, 5, 3)[rng.below(6)]))
        self.size = len(founders) + rng.below(2)
        self.nodes = [Node(me, self.options(), founders, self.checker, planted) for me in range(1, self.size + 1)]
        self.now: int = 0
        self.topology = TOPOLOGIES[seed % len(TOPOLOGIES)]
        # Rates in thousandths; a lease is promised for clocks that differ by at most one in a hundred.
        self.rates = [1000 + rng.below(10) for _ in range(self.size + 1)]
        self.linked = [[True] * (self.size + 1) for _ in range(self.size + 1)]
        self.loss: int = 0  # in thousandths
        self.delay = 1 + rng.below(40)
        self.disk_delays = [1 + rng.below(60)] * (self.size + 1)
        self.client_pause: int = CLIENT_PAUSE
        self._draw_slow_disks(Dice(seed + 1_000_003))
        self.stalls = Dice(seed + 3_000_003).chance(1, 6) and not self.is_mixed and not self.slowest
        self.heap: list[tuple[int, int, Event]] = []
        self.sequence: int = 0
        self.wakes: list[int] = [0] * (self.size + 1)
        self.paused: list[int] = [0] * (self.size + 1)
        self.count: int = 0
        self.sent: int = 0
        self.elections_seen: int = 0
        self.progress_after: int = -1  # how long the second part waited for progress; -1: it was not judged
        for node in self.nodes:
            self.turn(node)
        self.push(50, Event(CLIENT, 0, 0, None))

    def options(self) -> Options:
        """Return the settings of a process that starts."""
        faster = 2 if self.is_faster else 1
        options = Options()
        options.heartbeat_ns = HEARTBEAT // faster
        options.hurry_ns = HEARTBEAT // 2
        options.election_ns = ELECTION // faster
        options.learner_heartbeat_ns = 2 * ELECTION
        options.write_ns = WRITE
        options.kept_entries = self.kept_entries
        options.message_bytes = 200
        options.chunk_bytes = 32
        return options

    def _draw_slow_disks(self, rng: Dice) -> None:
        """Let writes take longer than an election timeout in some runs; `rng`: so that the others stay as they are."""
        if self.is_mixed or not rng.chance(1, 4):
            return
        write = ELECTION * (1 + rng.below(5))
        for me in range(1, self.size + 1):
            if rng.chance(2, 3):
                self.disk_delays[me] = write
        self.client_pause = (25, CLIENT_PAUSE)[rng.below(2)]

    @property
    def slowest(self) -> int:
        """The longest time that a write takes, if that is longer than an election timeout; else 0."""
        slowest = max(self.disk_delays)
        return slowest if slowest >= ELECTION else 0

    # Events

    def push(self, delay: int, event: Event) -> None:
        """Let an event happen after a delay."""
        self.sequence += 1
        heappush(self.heap, (self.now + delay, self.sequence, event))

    def local(self, me: int) -> int:
        """Return the time of a member's clock."""
        return self.now * self.rates[me] // 1000 + me * 100_000

    def run_until(self, end: int) -> None:
        """Let everything happen up to a time."""
        while self.heap and self.heap[0][0] <= end:
            self.now, _, event = heappop(self.heap)
            self.happen(event)
        self.now = end

    def happen(self, event: Event) -> None:
        """Let an event happen now, or later if its member stands still."""
        if event.kind == CLIENT:
            self.client()
            return
        node = self.nodes[event.me - 1]
        if not node.is_up or node.starts != event.start:
            if event.kind != ARRIVAL or not node.is_up:
                return
        if self.paused[event.me] > self.now:
            self.push(self.paused[event.me] - self.now, event)
            return
        if event.kind == DISK and self.stalled == event.me:
            self.push(HEARTBEAT, event)
            return
        now = self.local(event.me)
        if event.kind == ARRIVAL:
            assert event.message is not None
            node.raft.step(event.message, now)
        elif event.kind == DISK:
            node.raft.persisted(node.disk.complete(), now)
        else:
            if self.wakes[event.me] > self.now:
                return
            self.wakes[event.me] = 0
            node.raft.wake(now)
        self.turn(node)

    def client(self) -> None:
        """Propose and read at every member that leads, and read at one that does not."""
        self.push(self.client_pause + self.rng.below(self.client_pause), Event(CLIENT, 0, 0, None))
        for node in self.nodes:
            if node.is_up and self.paused[node.me] <= self.now and node.raft.role == LEADER:
                self.count += 1
                node.propose(b"%d" % self.count, self.local(node.me))
                if self.client_pause == CLIENT_PAUSE:
                    self.count += 1
                    node.read(self.count, self.local(node.me))
                self.turn(node)
        if self.client_pause < CLIENT_PAUSE:
            return  # each read has an answer of its own: the leader would hear of its followers by that
        node = self.nodes[self.rng.below(self.size)]
        if node.is_up and self.paused[node.me] <= self.now:
            self.count += 1
            node.read(self.count, self.local(node.me))
            self.turn(node)

    def turn(self, node: Node) -> None:
        """End the turn of a member: its messages and writes are under way."""
        rng = self.rng
        writes = len(node.disk.queue)
        for message in node.turn():
            self.sent += 1
            if message.to <= self.size and self.linked[message.sender][message.to]:
                if self.loss == 0 or not rng.chance(self.loss, 1000):
                    delay = 1 + rng.below(self.delay)
                    self.push(delay, Event(ARRIVAL, message.to, self.nodes[message.to - 1].starts, message))
                    if self.loss and rng.chance(1, 50):
                        self.push(delay * 3, Event(ARRIVAL, message.to, 0, message))
        for _ in range(len(node.disk.queue) - writes):
            self.push(1 + self.disk_delays[node.me], Event(DISK, node.me, node.starts, None))
        wait = max(0, node.raft.deadline() - self.local(node.me)) * 1000 // self.rates[node.me] + 1
        due = self.now + wait
        if self.wakes[node.me] <= self.now or due < self.wakes[node.me]:
            self.wakes[node.me] = due
            self.push(wait, Event(WAKE, node.me, node.starts, None))
        if self.checker.elections > self.elections_seen:
            self.elections_seen = self.checker.elections
            self.check_leases(node)

    def check_leases(self, elected: Node) -> None:
        """No member has a lease when another one is elected, but for as long as that one says."""
        known = elected.raft.predecessor_ns() * 101 // 100 + 1
        for node in self.nodes:
            if node is not elected and node.is_up and node.raft.role == LEADER:
                left = node.raft.lease_ns() - self.local(node.me)
                if left > known:
                    raise Violation(f"{elected.me} leads while {node.me} has a lease for {left}")

    # Faults

    def run(self) -> None:
        """Do both parts of the run."""
        rng = self.rng
        self.run_until(4 * ELECTION)
        for _ in range(2 + rng.below(5)):
            self.fault()
            self.run_until(self.now + 200 + rng.below(3 * ELECTION))
        self.recover()
        if self.stalls:
            self.stall_successor()
            self.recover()
        self.final()

    def fault(self) -> None:
        """Let one fault happen."""
        rng = self.rng
        if self.is_mixed and self.settings.chance(1, 2):
            self.fault_of_settings()
            return
        node = self.nodes[rng.below(self.size)]
        kind = rng.below(10)
        if kind <= 2:
            self.cut_at_random(rng.below(70), rng.chance(1, 2))
        elif kind == 3:
            self.loss = rng.below(300)
        elif kind == 4:
            self.crash(node)
        elif kind == 5:
            self.paused[node.me] = self.now + rng.below(2 * ELECTION)
        elif kind == 6:
            self.change(node.me)
        elif kind == 7:
            for other in self.nodes:
                if other.raft.role == LEADER and other.is_up:
                    if rng.chance(1, 2):
                        self.linked[node.me][other.me] = False  # the old leader is the last to hear of it
                    other.raft.transfer(node.me, self.local(other.me))
                    self.turn(other)
        elif kind == 8 and node.is_up:
            node.compact(self.local(node.me))
            self.turn(node)
        else:
            self.connect()

    def fault_of_settings(self) -> None:
        """Others than the leader get shorter times; it is cut off at once or later, or they take it for ended."""
        rng = self.settings
        leader = self.leader()
        if leader is None:
            return
        kind = rng.below(3)
        others = [node for node in self.nodes if node is not leader and node.is_up]
        for node in others:
            if kind != 1 or rng.chance(1, 2):
                node.crash(self.rng)
                self.is_faster = True
                self.restart(node)
        self.is_faster = False
        if kind:
            self.run_until(self.now + 2 * ELECTION)
        for node in others:
            self.cut(leader.me, node.me)
        for node in others:
            if kind == 1 and node.is_up:  # a firewall answers with resets
                node.raft.ended(leader.me, self.local(node.me))
                self.turn(node)

    def crash(self, node: Node) -> None:
        """End a process; the others may have a proof of it. It comes back at the end of the faults, or now."""
        if not node.is_up:
            return
        node.crash(self.rng)
        if self.rng.chance(1, 2):
            for other in self.nodes:
                if other.is_up and self.linked[node.me][other.me]:
                    other.raft.ended(node.me, self.local(other.me))
                    self.turn(other)
        else:
            self.restart(node)

    def restart(self, node: Node) -> None:
        """Start a process again."""
        self.wakes[node.me] = 0
        node.options = self.options()
        node.restart(self.local(node.me))
        self.turn(node)

    def change(self, peer: int) -> None:
        """Move a member in or out."""
        for node in self.nodes:
            if node.raft.role == LEADER and node.is_up:
                configuration = node.raft.log.configuration()
                kind = ADD_LEARNER
                if peer in configuration.members:
                    kind = PROMOTE
                    if configuration.is_voter(peer):
                        kind = DEMOTE if self.rng.chance(1, 2) else REMOVE
                node.raft.propose_change(kind, peer, b"", self.local(node.me))
                self.turn(node)

    def connect(self) -> None:
        """Heal all links."""
        for row in self.linked:
            for at in range(len(row)):
                row[at] = True

    def cut(self, one: int, other: int) -> None:
        """Cut a link both ways."""
        self.linked[one][other] = False
        self.linked[other][one] = False

    def cut_at_random(self, percent: int, one_way: bool) -> None:
        """Cut some links."""
        self.connect()
        for one in range(1, self.size + 1):
            for other in range(1, self.size + 1):
                if one < other and not one_way and self.rng.chance(percent, 100):
                    self.cut(one, other)
                if one_way and self.rng.chance(percent, 200):
                    self.linked[one][other] = False

    def stall_successor(self) -> None:
        """The leader ends, and the disk of the next one stands still as soon as it is elected: another one has to lead.

        Its vote is durable, and no entry of its term is. The others have a quorum without it, so they can do better.
        """
        leader = self.leader()
        if leader is None or len(leader.raft.log.configuration().voters) < 3:
            return
        term = leader.raft.term
        leader.crash(self.rng)
        until = self.now + PROGRESS_WITHIN
        while self.stalled == 0:
            self.run_until(self.now + 1)
            successor = self.leader()
            if successor is not None and successor.raft.term > term:
                self.stalled = successor.me
            elif self.now > until:
                return  # of the voters that are left none reaches a quorum: the newest configuration is not committed
        self.restart(leader)
        until = self.now + WRITE + PROGRESS_WITHIN
        while not self.serves():
            if self.now > until:
                raise Violation(f"{self.stalled} leads, and its disk stands still: nobody serves")
            self.run_until(self.now + 100)
        self.stalled = 0

    def serves(self) -> bool:
        """Tell whether the leader has applied an entry of its term."""
        leader = self.leader()
        return leader is not None and leader.raft.log.applied >= leader.raft.term_start()

    def recover(self) -> None:
        """End the faults of processes, and let the cluster have a leader for a while."""
        self.loss = 0
        self.connect()
        for me in range(1, self.size + 1):
            self.paused[me] = 0
            if not self.nodes[me - 1].is_up:
                self.restart(self.nodes[me - 1])
        self.run_until(self.now + 6 * ELECTION)

    # The second part

    def leader(self) -> Node | None:
        """Return the leader of the newest term."""
        best: Node | None = None
        for node in self.nodes:
            if node.is_up and node.raft.role == LEADER and (best is None or node.raft.term > best.raft.term):
                best = node
        return best

    def final(self) -> None:
        """Set the links, and demand progress and then stability."""
        rng = self.rng
        leader = self.leader()
        first = leader.me if leader is not None else 1
        others = [node.me for node in self.nodes if node.me != first]
        hub = others[rng.below(len(others))] if others else first
        self.arrange(first, hub)
        self.demand_progress()

    def arrange(self, first: int, hub: int) -> None:
        """Set the links: `first` leads, and `hub` is the member that reaches others where most do not."""
        name = self.topology
        if name == "random":
            self.cut_at_random(20 + self.rng.below(50), False)
        elif name == "one_way":
            self.cut_at_random(20 + self.rng.below(80), True)
        elif name == "quorum_loss":
            self.star(hub)
        elif name == "constrained":
            self.constrain(first, hub)
        elif name == "rejoin":
            self.rejoin(hub)
        else:
            self.cut_by_shape(first, hub)

    def cut_by_shape(self, first: int, hub: int) -> None:
        """Cut the links between members that are not neighbours in a shape; none for the shape "full"."""
        last = self.size if hub != self.size else self.size - 1
        for one in range(1, self.size + 1):
            for other in range(one + 1, self.size + 1):
                beside = hub in (one, other)
                apart = (other - one) % self.size
                if self.topology == "chained" and not beside and (apart == 1 or (one, other) == (first, last)):
                    self.cut(one, other)
                if self.topology == "bridge" and not beside and apart % 2:
                    self.cut(one, other)
                if self.topology == "ring" and apart not in (1, self.size - 1):
                    self.cut(one, other)

    def constrain(self, first: int, hub: int) -> None:
        """The hub misses what the others commit. Then the leader is gone, and only the hub reaches the others."""
        for other in range(1, self.size + 1):
            self.cut(hub, other)
        self.run_until(self.now + ELECTION // 2)
        leader = self.leader()
        self.star(hub)
        for other in range(1, self.size + 1):
            self.cut(leader.me if leader is not None else first, other)

    def star(self, hub: int) -> None:
        """Leave only the links of one member."""
        for one in range(1, self.size + 1):
            for other in range(1, self.size + 1):
                if hub not in (one, other):
                    self.linked[one][other] = False
                else:
                    self.linked[one][other] = True

    def rejoin(self, away: int) -> None:
        """A member that was away comes back: the leader stays."""
        leader = self.leader()
        if leader is None or leader.me == away:
            return
        term = leader.raft.term
        for other in range(1, self.size + 1):
            self.cut(away, other)
        self.run_until(self.now + 6 * ELECTION)
        if leader.raft.role != LEADER or leader.raft.term != term:
            return
        self.connect()
        self.run_until(self.now + 6 * ELECTION)
        if leader.raft.role != LEADER or leader.raft.term != term:
            raise Violation(f"{away} came back and deposed {leader.me}")

    def reaches_quorum(self, me: int, configuration: Configuration) -> bool:
        """Tell whether a voter has links both ways to a quorum."""
        linked = self.linked
        peers = [peer for peer in configuration.voters if peer == me or (linked[me][peer] and linked[peer][me])]
        return configuration.is_voter(me) and configuration.is_quorum(peers)

    def has_connected(self) -> bool:
        """Tell whether a voter is connected to a quorum, whichever configuration of those in logs counts."""
        for node in self.nodes:
            good = True
            for other in self.nodes:
                configuration = other.raft.log.configuration()
                for possible in (configuration, other.raft.log.configuration_at(other.raft.log.commit)):
                    if possible.voters and not self.reaches_quorum(node.me, possible):
                        good = False
            if good:
                return True
        return False

    def demand_progress(self) -> None:
        """Demand a commit within a bound of when the links were set, and then that one leader stays and has a lease."""
        if not self.has_connected():
            return
        start = self.now
        # A commit that was on its way does not count.
        self.run_until(start + 2 * ELECTION)
        before = self.checker.commit
        while self.checker.commit <= before:
            if self.now - start > PROGRESS_WITHIN + WRITES * self.slowest:
                raise Violation(f"no progress in topology {self.topology} since {start}")
            self.run_until(self.now + 100)
        self.progress_after = self.now - start
        self.run_until(self.now + 3 * ELECTION + 2 * self.slowest)
        elections = self.checker.elections
        before = self.checker.commit
        self.run_until(self.now + STABLE_FOR + 2 * self.slowest)
        if self.checker.elections > elections:
            raise Violation(
                f"{self.checker.elections - elections} elections in topology {self.topology} without a fault"
            )
        if self.checker.commit <= before:
            raise Violation(f"progress has ended in topology {self.topology}")
        leader = self.leader()
        if leader is None or leader.raft.lease_ns() <= self.local(leader.me):
            raise Violation(f"the leader has no lease in topology {self.topology}")
        self.checker.matching(self.nodes)
        self.checker.ended()
