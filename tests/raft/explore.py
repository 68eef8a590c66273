"""Draws any order of events: messages lost, repeated and reordered, crashes, changes; nothing depends on time.

A seed draws how likely each kind of event is in its run (swarm testing: Groce and others, ISSTA 2012), so that runs
differ more than they would with one set of figures for all.
"""

from __future__ import annotations

from folkmoot.raft.configuration import ADD_LEARNER, DEMOTE, PROMOTE, REMOVE
from folkmoot.raft.message import Message
from folkmoot.raft.option import Options
from folkmoot.raft.role import LEADER
from tests.raft.world import Checker, Dice, Node

__all__ = ["Explorer", "explore"]

EVENTS = 13
DELIVER, DROP, REPEAT, WAKE, PERSIST, PROPOSE, READ, CHANGE, COMPACT, CRASH, TRANSFER, CUT, PEACE = range(EVENTS)


class Explorer:
    """One run."""

    def __init__(self, seed: int, planted: list[str]) -> None:
        rng = Dice(seed)
        self.rng = rng
        self.checker = Checker()
        options = Options()
        options.heartbeat_ns = 100
        options.hurry_ns = 50
        options.election_ns = 1000
        options.learner_heartbeat_ns = 2000
        options.kept_entries = rng.below(4)
        options.message_bytes = 1 if rng.chance(1, 2) else 1 + rng.below(200)
        options.chunk_bytes = 8 + rng.below(40)
        options.inflight_messages = 1 + rng.below(4)
        founders = list(range(1, 1 + (3, 3, 3, 3, 4, 4, 5, 1)[rng.below(8)]))
        size = max(3, len(founders) + rng.below(2))
        self.nodes = [Node(me, options, founders, self.checker, planted) for me in range(1, size + 1)]
        self.now: list[int] = [0] * (size + 1)  # each member's clock goes as it likes
        self.cut: list[int] = []  # members that nothing reaches
        self.pool: list[Message] = []
        self.hoard: list[Message] = []  # copies that arrive much later
        self.count: int = 0
        # Weights of the events of this run; some never happen in it.
        self.weights: list[int] = [0] * EVENTS
        usual = [6, 2, 4, 3, 6, 8, 4, 4, 3, 1, 1, 1, 1]
        for event in range(EVENTS):
            rare = event not in (DELIVER, WAKE, PERSIST, PROPOSE, PEACE) and rng.chance(1, 4)
            self.weights[event] = 0 if rare else usual[event] * (1 + rng.below(3))
        self.lonely = rng.below(3)
        self.length = 60 + rng.below(140)
        self.delayed = rng.below(12)  # messages that are still under way when much has changed
        if rng.chance(1, 3):
            self.weights[CHANGE] *= 8
        if rng.chance(1, 3):
            self.weights[CRASH] *= 4
        self.total = sum(self.weights)

    def run(self, phases: int) -> None:
        """Let phases pass, then check what can be checked at the end."""
        for _ in range(phases):
            self.phase()
        self.checker.matching(self.nodes)
        self.checker.ended()

    def phase(self) -> None:
        """Change the links, let a member campaign, and let events follow for a while."""
        rng = self.rng
        pool = self.pool
        while len(pool) > self.delayed:
            pool.pop(rng.below(len(pool)))
        self.cut = []
        kind = rng.below(8)
        if kind < 3:
            self.cut = [1 + rng.below(len(self.nodes))]
        elif kind < 6:
            for node in self.nodes:
                if rng.chance(1, 4) or (node.raft.role == LEADER and rng.chance(1, 2)):
                    self.cut.append(node.me)
        if rng.chance(2, 3):
            node = self.nodes[rng.below(len(self.nodes))]
            # One that has led before has what others have not.
            if rng.chance(1, 2):
                for other in self.nodes:
                    if other.raft.log.last_term() > node.raft.log.last_term() and other.me not in self.cut:
                        node = other
            if node.me not in self.cut:
                self.act(node, WAKE)
                self.turn(node)
        for _ in range(rng.below(self.length)):
            if rng.chance(1, 5):
                self.step()
            elif rng.chance(2, 3):
                self.message(DELIVER)
            else:
                self.persist(self.nodes[rng.below(len(self.nodes))])

    def persist(self, node: Node) -> None:
        """Let the oldest write of a member become durable, or of one after it that has any under way."""
        for at in range(len(self.nodes)):
            other = self.nodes[(node.me + at) % len(self.nodes)]
            if other.disk.queue:
                node = other
                break
        if node.disk.queue:
            node.raft.persisted(node.disk.complete(), self.now[node.me])
            self.turn(node)

    def step(self) -> None:
        """Let one event happen."""
        rng = self.rng
        at = rng.below(self.total)
        event = 0
        while at >= self.weights[event]:
            at -= self.weights[event]
            event += 1
        if event <= REPEAT:
            self.message(event)
            return
        node = self.nodes[rng.below(len(self.nodes))]
        if event == CUT:
            self.cut = [other.me for other in self.nodes if rng.chance(1, 3)]
        elif event == PEACE:
            self.cut = []
        elif event == CRASH:
            node.crash(rng)
            node.restart(self.now[node.me])
            self.turn(node)
        elif event == PERSIST:
            self.persist(node)
        else:
            self.act(node, event)
            self.turn(node)

    def message(self, event: int) -> None:
        """Deliver, lose or repeat one of the messages under way."""
        rng = self.rng
        pool = self.pool
        if not pool:
            return
        # Mostly the oldest ones, so that something gets on; sometimes any.
        at = rng.below(len(pool)) if rng.chance(1, 3) else rng.below(min(len(pool), 3))
        message = pool[at]
        if event == REPEAT and self.hoard and rng.chance(1, 2):
            message = self.hoard[rng.below(len(self.hoard))]
        if event != REPEAT:
            pool.pop(at)
        if event == DROP or message.sender in self.cut or message.to in self.cut:
            return
        if message.to > len(self.nodes):
            return
        node = self.nodes[message.to - 1]
        now = self.now[node.me] + rng.below(60)
        self.now[node.me] = now
        node.raft.step(message, now)
        self.turn(node)

    def act(self, node: Node, event: int) -> None:
        """Let a member do something by itself."""
        rng = self.rng
        raft = node.raft
        now = self.now[node.me]
        self.count += 1
        if event == WAKE:
            if raft.role != LEADER and rng.chance(2, 3):
                # Time passes for all, at different rates: others have not heard a leader for long either.
                for me in range(len(self.now)):
                    self.now[me] += rng.below(4000)
            now = max(self.now[node.me], raft.deadline()) if rng.chance(9, 10) else now + 1000
            self.now[node.me] = now
            raft.wake(now)
        elif event == PROPOSE:
            for _ in range(1 + rng.below(3)):
                self.count += 1
                node.propose(b"%d" % self.count, now)
        elif event == READ:
            node.read(self.count, now)
        elif event == COMPACT:
            node.compact(now)
        elif event == TRANSFER:
            raft.transfer(1 + rng.below(len(self.nodes)), now)
        elif event == CHANGE and raft.role == LEADER:
            configuration = raft.log.configuration()
            peer = 1 + rng.below(len(self.nodes))
            kind = ADD_LEARNER
            if peer in configuration.members:
                kind = REMOVE
                if rng.chance(2, 3):
                    kind = DEMOTE if configuration.is_voter(peer) else PROMOTE
            raft.propose_change(kind, peer, b"", now)

    def turn(self, node: Node) -> None:
        """End the turn of a member."""
        before = self.checker.elections
        messages = node.turn()
        self.pool.extend(messages)
        if messages and self.rng.chance(1, 8):
            if len(self.hoard) > 8:
                self.hoard.pop(self.rng.below(len(self.hoard)))
            self.hoard.append(messages[-1])
        if self.checker.elections > before:
            if self.weights[CHANGE] and self.rng.chance(1, 4):
                self.act(node, CHANGE)
            if self.lonely and self.rng.chance(self.lonely, 4):
                # What a new leader appends stays with it, so that logs differ.
                self.cut = [node.me]
                for _ in range(self.rng.below(3)):
                    self.act(node, PROPOSE)
            self.pool.extend(node.turn())
        if len(self.pool) > 200:
            del self.pool[:100]


def explore(first: int, count: int, steps: int, planted: list[str]) -> tuple[int, int]:
    """Run seeds; return how many leaders were elected and how many entries were committed in all of them."""
    elections = 0
    committed = 0
    for seed in range(first, first + count):
        explorer = Explorer(seed, planted)
        explorer.run(steps)
        elections += explorer.checker.elections
        committed += explorer.checker.commit
    return elections, committed
