"""Members with simulated disks, and the checkers of what Raft promises; drivers decide what happens next.

Nothing here depends on time: `explore` draws any order of events, `timed` has clocks, delays and links.
"""

from __future__ import annotations

from folkmoot.raft.configuration import Configuration, decode_change
from folkmoot.raft.entry import CHANGE, DATA, Entry, HardState, Snapshot, founding
from folkmoot.raft.message import APPEND_RESPONSE, GRANTED, VOTE, VOTE_RESPONSE, Message, decode_message, encode_message
from folkmoot.raft.option import Options
from folkmoot.raft.raft import Raft
from folkmoot.raft.ready import COMMITTED, LOST, Ready, Write
from folkmoot.raft.recovery import Persisted
from folkmoot.raft.role import LEADER

__all__ = ["Checker", "Dice", "Disk", "Node", "Violation"]


class Violation(Exception):
    """A promise was broken."""


class Dice:
    """Random numbers for drivers (MINSTD: Park, Miller, CACM 1988): native integers, a tenth of the cost of `Rng`."""

    def __init__(self, seed: int) -> None:
        self._state = seed * 7919 % 2147483646 + 1
        for _ in range(3):
            self.below(2)

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound)."""
        self._state = self._state * 48271 % 2147483647
        return self._state % bound

    def chance(self, numerator: int, denominator: int) -> bool:
        """Return True with probability numerator / denominator."""
        return self.below(denominator) < numerator


class Disk:
    """What is durable, and the writes that are under way."""

    def __init__(self, persisted: Persisted) -> None:
        self.hard_state = persisted.hard_state
        self.snapshot = persisted.snapshot
        self.entries: list[Entry] = list(persisted.entries)
        self.queue: list[Write] = []

    def complete(self) -> int:
        """Make the oldest write durable; return its token."""
        write = self.queue.pop(0)
        self._store(write, len(write.entries))
        return write.token

    def crash(self, rng: Dice) -> None:
        """Keep some of the writes under way, in their order; the next one may have been cut off."""
        kept = rng.below(len(self.queue) + 1)
        for write in self.queue[:kept]:
            self._store(write, len(write.entries))
        if kept < len(self.queue) and rng.chance(1, 2) and self.queue[kept].snapshot is None:
            self._store(self.queue[kept], rng.below(len(self.queue[kept].entries) + 1))
        self.queue = []

    def _store(self, write: Write, count: int) -> None:
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.snapshot is not None:
            self.snapshot = write.snapshot
        first = write.drop_before
        cut = write.truncate_from
        if first or cut:
            self.entries = [e for e in self.entries if e.index >= first and (cut == 0 or e.index < cut)]
        self.entries.extend(write.entries[:count])

    def last_index(self) -> int:
        """Return the index of the last durable entry."""
        return self.entries[-1].index if self.entries else self.snapshot.index

    def persisted(self) -> Persisted:
        """Return what a restart finds."""
        return Persisted(
            HardState(self.hard_state.term, self.hard_state.vote, self.hard_state.commit, self.hard_state.promise_ns),
            self.snapshot,
            list(self.entries),
        )


class Checker:
    """What the whole cluster has done so far, and the promises about it."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}  # term -> member
        self.votes: dict[tuple[int, int], int] = {}  # (term, voter) -> candidate
        self.spoken: dict[int, int] = {}  # member -> newest term that it has spoken
        self.applied: dict[int, Entry] = {}
        self.digests: dict[int, int] = {}
        self.configurations: dict[int, Configuration] = {}
        self.commit: int = 0  # the newest commit index of any member
        self.proposed: dict[bytes, int] = {}  # data -> 1 when a member called it committed, 2 when lost
        self.committed_in: dict[int, int] = {}  # index -> the term in which it was committed
        self.disks: dict[int, Disk] = {}
        self.elections: int = 0
        self.reads: int = 0

    def speaks(self, node: Node, message: Message) -> None:
        """Check a message that leaves a member."""
        term = message.term
        if message.kind == VOTE_RESPONSE and message.verdict == GRANTED:
            self._vote(term, message.sender, message.to)
            self._term(message.sender, term)
        elif message.kind == VOTE:
            self._vote(term, message.sender, message.sender)
            self._term(message.sender, term)
        elif message.kind == APPEND_RESPONSE and message.verdict == GRANTED:
            if not (node.disk.last_index() >= message.index):
                raise Violation(f"{message!r} confirms what is not durable")
            self._term(message.sender, term)

    def _vote(self, term: int, voter: int, candidate: int) -> None:
        before = self.votes.get((term, voter), 0)
        if before not in (0, candidate):
            raise Violation(f"{voter} votes for {before} and {candidate} in term {term}")
        self.votes[(term, voter)] = candidate

    def _term(self, member: int, term: int) -> None:
        self.spoken[member] = max(self.spoken.get(member, 0), term)

    def started(self, node: Node) -> None:
        """Check a member that was started again."""
        spoken = self.spoken.get(node.me, 0)
        if not (node.raft.term >= spoken):
            raise Violation(f"{node.me} comes back in term {node.raft.term}, and has spoken of {spoken}")

    def leads(self, node: Node) -> None:
        """Check a member that leads, when it is seen to lead for the first time in its term."""
        term = node.raft.term
        other = self.leaders.get(term, 0)
        if other not in (0, node.me):
            raise Violation(f"{other} and {node.me} lead in term {term}")
        self._matches(node)
        if other:
            return
        self.leaders[term] = node.me
        self.elections += 1
        log = node.raft.log
        for index in range(max(log.first, 1), self.commit + 1):
            entry = self.applied.get(index)
            # An election of an earlier term may end late; it knows nothing of what is committed in later ones.
            if entry is not None and self.committed_in[index] < term:
                if not (log.term_at(index) == entry.term):
                    raise Violation(f"leader {node.me} of term {term} lacks the committed {entry!r}")

    def _matches(self, node: Node) -> None:
        """What a leader takes for matching is on the disks, as long as they are of no newer term."""
        log = node.raft.log
        for peer, disk in self.disks.items():
            match = node.raft.acknowledged(peer)
            at = match - disk.entries[0].index if disk.entries else -1
            if match < log.first or at < 0 or disk.hard_state.term > node.raft.term:
                continue
            found = disk.entries[at].term if at < len(disk.entries) else 0
            if found != log.term_at(match):
                raise Violation(f"leader {node.me} takes {match} for matching at {peer}, which has term {found} there")

    def applies(self, node: Node, entry: Entry) -> None:
        """Check an entry that a member applies; compute the state after it."""
        if not (entry.index == node.applied + 1):
            raise Violation(f"{node.me} applies {entry.index} after {node.applied}")
        known = self.applied.get(entry.index)
        if known is None:
            self.applied[entry.index] = entry
            self.digests[entry.index] = digest(node.digest, entry)
            self._configured(entry)
        else:
            if not (known.same(entry)):
                raise Violation(f"{node.me} applies {entry!r}, another member {known!r}")
        node.applied = entry.index
        node.digest = digest(node.digest, entry)
        if not (self.digests[entry.index] == node.digest):
            raise Violation(f"{node.me} differs at {entry.index}")

    def _configured(self, entry: Entry) -> None:
        if entry.kind != CHANGE:
            return
        change = decode_change(entry.data)
        before = self.configurations[max(self.configurations)]
        after = before.after(change.kind, change.peer)
        if not (after is not None and after.same(change.configuration)):
            raise Violation(f"{entry!r} does not follow {before!r}")
        self.configurations[entry.index] = change.configuration

    def restores(self, node: Node, snapshot: Snapshot) -> None:
        """Check a snapshot that a member takes over."""
        if not (snapshot.index >= node.applied):
            raise Violation(f"{node.me} goes back from {node.applied} to {snapshot.index}")
        node.applied = snapshot.index
        node.digest = int.from_bytes(snapshot.data, "big")
        known = self.digests.get(snapshot.index)
        if not (known is None or known == node.digest):
            raise Violation(f"the snapshot of {node.me} at {snapshot.index} is another")

    def matching(self, nodes: list[Node]) -> None:
        """Check log matching for every two members."""
        for at, one in enumerate(nodes):
            for other in nodes[at + 1 :]:
                a = one.raft.log
                b = other.raft.log
                low = max(a.first, b.first)
                same = False
                for index in range(min(a.last_index(), b.last_index()), low - 1, -1):
                    left = a.entries[index - a.first]
                    right = b.entries[index - b.first]
                    same = same or left.term == right.term
                    if not (not same or left.same(right)):
                        raise Violation(f"{one.me} has {left!r}, {other.me} has {right!r}, of one term")

    def ended(self) -> None:
        """Check what was told about proposals."""
        placed = {entry.data for entry in self.applied.values() if entry.kind == DATA}
        for data, result in self.proposed.items():
            if not (result != 1 or data in placed):
                raise Violation(f"{data!r} is not there, but was called committed")
            if not (result != 2 or data not in placed):
                raise Violation(f"{data!r} is there, but was called lost")


def digest(before: int, entry: Entry) -> int:
    """Return the state after an entry."""
    return (
        before * 1_000_003 + entry.index * 31 + entry.term * 7 + len(entry.data) + sum(entry.data)
    ) % 2305843009213693951


class Node:
    """One member with its disk and its state machine."""

    def __init__(self, me: int, options: Options, founders: list[int], checker: Checker, planted: list[str]) -> None:
        self.me = me
        self.options = options
        self.checker = checker
        self.planted = planted
        founder = me in founders
        snapshot = founding(founders)
        self.disk = Disk(Persisted.founder(snapshot) if founder else Persisted.nothing())
        checker.configurations[1] = snapshot.configuration
        checker.disks[me] = self.disk
        self.applied: int = 0
        self.digest: int = 0
        self.handles: dict[int, bytes] = {}
        self.reads: dict[int, int] = {}  # context -> the commit index of the cluster when it was asked
        self.is_up = True
        self.starts: int = 0
        self.raft = self._start(0)

    def _start(self, now: int) -> Raft:
        self.starts += 1
        self.applied = 0
        self.digest = 0
        self.handles = {}
        self.reads = {}
        seed = self.me * 1000 + self.starts
        return Raft(self.me, self.options, self.disk.persisted(), 0, seed, now, self.planted)

    def crash(self, rng: Dice) -> None:
        """End the process; some writes under way are lost."""
        self.disk.crash(rng)
        self.is_up = False

    def restart(self, now: int) -> None:
        """Start the process again from its disk."""
        self.raft = self._start(now)
        self.is_up = True
        self.checker.started(self)

    def propose(self, data: bytes, now: int) -> bool:
        """Propose data that no member has proposed before."""
        proposal = self.raft.propose(data, now)
        if proposal.handle:
            self.handles[proposal.handle] = data
            self.checker.proposed[data] = 0
        return proposal.handle > 0

    def read(self, context: int, now: int) -> None:
        """Ask for a read index."""
        if self.raft.read_index(context, now) == 0:
            self.reads[context] = self.checker.commit

    def turn(self) -> list[Message]:
        """Carry the effects of a turn out, but for the messages, which are returned; check all of them."""
        checker = self.checker
        messages: list[Message] = []
        while True:
            ready = self.raft.ready()
            if ready.write is not None:
                self.disk.queue.append(ready.write)
            for message in ready.messages:
                checker.speaks(self, message)
                messages.append(message)
            self._take(ready)
            if not ready.more:
                break
        for index in range(checker.commit + 1, self.raft.log.commit + 1):
            checker.committed_in[index] = self.raft.term
        checker.commit = max(checker.commit, self.raft.log.commit)
        if self.raft.role == LEADER:
            checker.leads(self)
        return messages

    def _take(self, ready: Ready) -> None:
        checker = self.checker
        if ready.restore is not None:
            checker.restores(self, ready.restore)
        for entry in ready.apply:
            checker.applies(self, entry)
        for outcome in ready.outcomes:
            data = self.handles.pop(outcome.handle, b"")
            if data and outcome.result in (COMMITTED, LOST):
                checker.proposed[data] = outcome.result
        for state in ready.reads:
            floor = self.reads.pop(state.context, -1)
            if floor >= 0 and state.done:
                checker.reads += 1
                if not (state.index >= floor):
                    raise Violation(f"{self.me} reads at {state.index}, {floor} was committed before")

    def compact(self, now: int) -> None:
        """Take a snapshot of the state machine, if it has moved."""
        if self.applied > self.raft.log.snapshot.index:
            self.raft.compact(self.applied, self.digest.to_bytes(8, "big"), now)

    def arrives(self, encoded: bytes, now: int) -> None:
        """Take a message from the network."""
        self.raft.step(decode_message(encoded), now)


def wire(message: Message) -> bytes:
    """Return a message as it travels."""
    return encode_message(message)
