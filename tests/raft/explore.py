"""Draws any order of events: messages lost, repeated and reordered, crashes, changes; nothing depends on time.

A seed draws how likely each kind of event is in its run (swarm testing: Groce and others, ISSTA 2012), so that runs
differ more than they would with one set of figures for all.
"""

from __future__ import annotations

from folkmoot.kernel.rng import Rng
from folkmoot.raft.configuration import ADD_LEARNER, DEMOTE, PROMOTE, REMOVE
from folkmoot.raft.message import Message
from folkmoot.raft.option import Options
from folkmoot.raft.role import LEADER
from tests.raft.world import Checker, Node

__all__ = ["Explorer", "explore"]

EVENTS = 13
DELIVER, DROP, REPEAT, WAKE, PERSIST, PROPOSE, READ, CHANGE, COMPACT, CRASH, TRANSFER, CUT, PEACE = range(EVENTS)


class Explorer:
    """One run."""

    def __init__(self, seed: int, planted: list[str]) -> None:
        rng = Rng(seed)
        self.rng = rng
        self.checker = Checker()
        options = Options()
        options.heartbeat_ns = 100
        options.election_ns = 1000
        options.kept_entries = rng.below(4)
        options.message_bytes = 1 + rng.below(120)
        options.chunk_bytes = 8 + rng.below(40)
        options.inflight_messages = 1 + rng.below(4)
        founders = list(range(1, 2 + rng.below(5)))
        size = max(3, len(founders) + rng.below(2))
        self.nodes = [Node(me, options, founders, self.checker, planted) for me in range(1, size + 1)]
        self.now: list[int] = [0] * (size + 1)  # each member's clock goes as it likes
        self.cut: list[int] = []  # members that nothing reaches
        self.pool: list[Message] = []
        self.count: int = 0
        # Weights of the events of this run; some never happen in it.
        self.weights: list[int] = [0] * EVENTS
        usual = [120, 4, 4, 5, 60, 6, 4, 5, 3, 2, 1, 1, 2]
        for event in range(EVENTS):
            rare = event not in (DELIVER, WAKE, PERSIST, PROPOSE) and rng.chance(1, 4)
            self.weights[event] = 0 if rare else usual[event] * (1 + rng.below(3))
        self.total = sum(self.weights)

    def run(self, steps: int) -> None:
        """Let `steps` events happen, then check what can be checked at the end."""
        for _ in range(steps):
            self.step()
        self.checker.matching(self.nodes)
        self.checker.ended()

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
            if node.disk.queue:
                node.raft.persisted(node.disk.complete(), self.now[node.me])
                self.turn(node)
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
            now = max(now, raft.deadline()) if rng.chance(9, 10) else now + 1000
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
            kind = (ADD_LEARNER, PROMOTE, DEMOTE, REMOVE)[rng.below(4)]
            peer = 1 + rng.below(len(self.nodes))
            raft.propose_change(kind, peer, b"", now)

    def turn(self, node: Node) -> None:
        """End the turn of a member."""
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
