"""Members with configuration logs, stores and batches under way, and the checkers of what the log promises.

Any order of events is drawn: messages lost, repeated and reordered, batches that become durable late, crashes between
any two of them, members that found a lineage of their own and come back. One seed is one run.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.rng import Rng
from folkmoot.membership.cluster_member import ClusterMember, Process
from folkmoot.membership.command import Activate, Found, Join, MarkAway, Put
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_format import encode_configuration
from folkmoot.membership.configuration_log import ConfigurationLog, lineage_of
from folkmoot.membership.fork import fork_of
from folkmoot.membership.log_rows import (
    CurrentLineage,
    drop_lineage,
    put_current,
    put_founding,
    read_current,
    read_lineage,
)
from folkmoot.raft.configuration import ADD_LEARNER, DEMOTE, PROMOTE
from folkmoot.raft.message import APPEND_RESPONSE, GRANTED, VOTE, VOTE_RESPONSE, decode_message
from folkmoot.raft.option import Options
from folkmoot.raft.ready import COMMITTED, LOST
from folkmoot.raft.recovery import Persisted
from folkmoot.store.batch import Batch
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer

__all__ = ["CLUSTER", "TRUNK", "Group", "Machine", "Violation", "founding", "member"]

CLUSTER = 77
TRUNK = 1000
ELECTION = 1000


class Violation(Exception):
    """A promise was broken."""


def member(disk: int, incarnation: int = 1) -> ClusterMember:
    """A member as it joins."""
    return ClusterMember(disk, f"n{disk}", 0, Process(incarnation, f"n{disk}:7883", f"z{disk}", ""))


def founding(disk: int, lineage: int = TRUNK) -> Persisted:
    """The state in which a member founds the cluster."""
    return ConfigurationLog.found(Found(CLUSTER, lineage, 0, 0, [member(disk)], 4, 3), disk)


class Machine:
    """One member with its store; `planted`: bugs of Raft, `forgets`: it starts without its vote."""

    def __init__(self, disk: int, options: Options, planted: list[str], forgets: bool, early: bool) -> None:
        self.disk = disk
        self.options = options
        self.planted = planted
        self.forgets = forgets
        self.early = early  # it takes each batch for durable one batch too early
        self.store = MemoryStore()
        self.writer = Writer(4, 1)
        self.pending: list[Batch] = []
        self.starts = 0
        self.log: ConfigurationLog | None = None
        self.handles: dict[int, str] = {}

    def apply_all(self) -> None:
        """Make everything durable that is under way."""
        for batch in self.pending:
            self.store.apply(batch)
        self.pending = []

    def begin(self, now: int) -> None:
        """Open the log of the lineage that the store names."""
        current = read_current(self.store)
        assert current is not None
        persisted = read_lineage(self.store, current.lineage)
        if self.forgets:
            persisted.hard_state.vote = 0
        self.starts += 1
        self.handles = {}
        seed = self.disk * 1000 + self.starts
        self.log = ConfigurationLog(self.disk, current.lineage, self.options, persisted, seed, now, self.planted)

    def log_of(self) -> ConfigurationLog:
        """Return its log."""
        assert self.log is not None, "it is open"
        return self.log

    def commit_rows(self) -> None:
        """Write what is in the batch at once."""
        batch = self.writer.take()
        assert batch is not None
        self.pending.append(batch)
        self.apply_all()


class Group:
    """One run."""

    def __init__(
        self, seed: int, planted: list[str], forgets: bool = False, early: bool = False, size: int = 0
    ) -> None:
        rng = self.rng = Rng(seed)
        options = Options()
        options.heartbeat_ns = 100
        options.hurry_ns = 50
        options.election_ns = ELECTION
        options.learner_heartbeat_ns = 2000
        options.kept_entries = rng.below(6)
        options.message_bytes = 1 + rng.below(400)
        options.chunk_bytes = 64 + rng.below(400)
        self.now = 1
        self.voters = 0
        self.machines = [
            Machine(disk, options, planted, forgets, early) for disk in range(1, 1 + (size or 3 + rng.below(3)))
        ]
        self.pool: list[tuple[int, int, bytes]] = []
        self.late: list[tuple[int, int, bytes]] = []  # messages that arrive, or arrive again, much later
        self.cut: list[int] = []
        self.compacts = rng.chance(1, 2)
        self.chance_of_crash = rng.below(3)
        self.unrest = rng.below(4) == 0  # leaders end and messages are late all the time
        self.chance_of_fork = rng.below(2)
        self.loss = rng.below(4)
        self.lineages = TRUNK
        self.leaders: dict[tuple[int, int], int] = {}
        self.asked: list[tuple[int, int, bytes]] = []  # all requests for votes
        self.said: list[tuple[int, int, int]] = []  # (lineage, term, commit index) of leaders
        self.votes: dict[tuple[int, int, int], int] = {}
        self.states: dict[tuple[int, int], bytes] = {}
        self.keys: dict[str, int] = {}  # what became of the settings that were proposed in the trunk
        self.puts = 0
        self.restores = 0
        self.forks = 0
        self.crashes = 0
        self.commands = 0
        first = self.machines[0]
        put_founding(first.writer, TRUNK, founding(1))
        for machine in self.machines:
            put_current(machine.writer, CurrentLineage(CLUSTER, TRUNK))
            machine.commit_rows()
            machine.begin(self.now)
        self.voters = size or 1 + self.rng.below(len(self.machines))
        self.steady(lambda: len(self.machines[0].log_of().voters) >= self.voters)

    # What happens

    def steady(self, done: Callable[[], bool]) -> None:
        """Let everything arrive and become durable, and members be added, until `done`, at most 600 times."""
        for _ in range(600):
            if done():
                return
            self.now += 50
            self.wake()
            for machine in self.machines:
                while machine.pending:
                    self.persist(machine)
            pool = self.pool
            self.pool = []
            for sender, to, data in pool:
                self.arrive(sender, to, data)
            if self.voters:
                self.change()

    def run(self, events: int) -> None:
        """Let events happen, then heal everything and check what is left."""
        for _ in range(events):
            self.event()
        self.heal()

    def event(self) -> None:
        """Let one thing happen."""
        rng = self.rng
        machine = self.machines[rng.below(len(self.machines))]
        kind = rng.below(100)
        if self.unrest and rng.chance(1, 12):
            self.upset(machine)
        elif kind < 45:
            self.deliver()
        elif kind < 65:
            self.persist(machine)
        elif kind < 80:
            self.now += rng.below(120)
            self.wake()
        elif kind < 90:
            self.propose()
        elif kind < 94:
            self.change()
        elif kind < 95:
            self.cut = [] if rng.chance(1, 2) else [machine.disk]
        elif kind < 96:
            if self.late:
                self.arrive(*self.late.pop(rng.below(len(self.late))))
        elif kind < 97:
            self.tell(machine)
        elif kind < 98:
            if self.chance_of_crash and rng.chance(self.chance_of_crash, 2):
                self.crash(machine)
        elif self.chance_of_fork:
            self.fork_or_return(machine)

    def tell(self, machine: Machine) -> None:
        """Let a member hear what a leader has committed, now or a while ago, otherwise than from Raft."""
        log = machine.log_of()
        said = [one for one in self.said[-20:] if one[0] == log.lineage]
        if said:
            _lineage, term, commit = said[self.rng.below(len(said))]
            log.learn_commit(term, commit, self.now)
            self.turn(machine)

    def upset(self, machine: Machine) -> None:
        """Let several members take the leader for ended at once, or a vote arrive late, after a crash."""
        rng = self.rng
        if rng.chance(1, 3):
            for other in self.machines:
                log = other.log_of()
                if log.leader and not log.is_leader and rng.chance(2, 3):
                    log.ended(log.leader, self.now)
                    self.turn(other)
            return
        if rng.chance(1, 2):
            self.crash(machine)
            self.now += ELECTION
        term = machine.log_of().term
        asked = [one for one in self.asked[-40:] if one[1] == machine.disk and decode_message(one[2][2:]).term == term]
        if asked:
            self.arrive(*asked[rng.below(len(asked))])

    def deliver(self) -> None:
        """Let a message arrive, or get lost, or arrive twice."""
        rng = self.rng
        if not self.pool:
            self.now += rng.below(60)
            self.wake()
            return
        at = rng.below(min(6, len(self.pool)))
        sender, to, data = self.pool[at]
        if not rng.chance(1, 20):
            del self.pool[at]
        if rng.chance(1, 8):
            self.late.append((sender, to, data))
            if rng.chance(1, 2):
                return
        if rng.chance(self.loss, 20) or sender in self.cut or to in self.cut:
            return
        self.arrive(sender, to, data)

    def arrive(self, sender: int, to: int, data: bytes) -> None:
        """Let a message arrive."""
        if to <= len(self.machines):
            machine = self.machines[to - 1]
            if machine.log is not None:
                machine.log.step(sender, data, self.now)
                self.turn(machine)

    def wake(self) -> None:
        """Wake every member whose time has come."""
        for machine in self.machines:
            if machine.log is not None and machine.log.deadline() <= self.now:
                machine.log.wake(self.now)
                self.turn(machine)
        self.check_leases()

    def persist(self, machine: Machine) -> None:
        """Make the oldest batch of a member durable."""
        if machine.pending:
            batch = machine.pending.pop(0)
            machine.store.apply(batch)
            if machine.log is not None:
                machine.log.written(batch.token + (1 if machine.early else 0), self.now)
                self.turn(machine)

    def crash(self, machine: Machine) -> None:
        """End a process between any two of its batches, and start it again."""
        self.crashes += 1
        kept = self.rng.below(len(machine.pending) + 1)
        for batch in machine.pending[:kept]:
            machine.store.apply(batch)
        machine.pending = []
        machine.writer = Writer(4, 1)
        machine.begin(self.now)
        self.turn(machine)

    def fork_or_return(self, machine: Machine) -> None:
        """Found another lineage for a while, or come back from it."""
        log = machine.log
        assert log is not None
        if log.lineage != TRUNK:
            machine.apply_all()
            machine.writer = Writer(4, 1)
            if self.rng.chance(1, 2):
                drop_lineage(machine.writer, log.lineage)
            put_current(machine.writer, CurrentLineage(CLUSTER, TRUNK))
            machine.commit_rows()
        else:
            if not log.configuration.is_founded() or machine.disk not in log.configuration.members:
                return
            machine.apply_all()
            self.forks += 1
            self.lineages += 1
            machine.writer = Writer(4, 1)
            members = log.configuration.members.values()
            absent = [(one.disk, one.incarnation) for one in members if one.disk != machine.disk]
            configuration = fork_of(log.configuration, self.lineages, absent if self.rng.chance(1, 2) else [])
            put_founding(machine.writer, self.lineages, ConfigurationLog.fork(configuration, machine.disk))
            put_current(machine.writer, CurrentLineage(CLUSTER, self.lineages))
            machine.commit_rows()
            assert read_lineage(machine.store, TRUNK).hard_state.term > 0, "the parent's rows stay"
        machine.begin(self.now)
        self.turn(machine)

    def propose(self) -> None:
        """Propose at every member that leads."""
        for machine in self.machines:
            log = machine.log
            if log is None or not log.is_leader:
                continue
            configuration = log.configuration
            away = [disk for disk in configuration.disks() if disk != machine.disk]
            kind = self.rng.below(8)
            if kind == 0 and away:
                one = configuration.members[away[self.rng.below(len(away))]]
                log.propose(MarkAway(one.disk, one.incarnation, one.version, 2), self.now)
            elif kind == 1 and away:
                one = configuration.members[away[self.rng.below(len(away))]]
                process = Process(one.incarnation + 1, f"n{one.disk}:7883", f"z{one.disk}", "")
                log.propose(Activate(one.disk, one.version, process), self.now)
            elif kind == 2:
                for other in self.machines:
                    if other.disk not in configuration.members:
                        log.propose(Join(member(other.disk)), self.now)
            else:
                self.put(machine, log)
            self.turn(machine)

    def put(self, machine: Machine, log: ConfigurationLog) -> None:
        """Propose a setting of its own."""
        self.puts += 1
        key = f"k{self.puts}"
        proposal = log.propose(Put(key, b"v" * self.rng.below(50), -1, "test"), self.now)
        if proposal.handle and log.lineage == TRUNK:
            machine.handles[proposal.handle] = key
            self.keys[key] = 0

    def change(self) -> None:
        """Propose a change of voters at every member that leads in the trunk."""
        for machine in self.machines:
            log = machine.log
            if log is None or not log.is_leader or log.lineage != TRUNK:
                continue
            disk = 1 + self.rng.below(len(self.machines))
            kind = PROMOTE if disk in log.learners else DEMOTE
            if disk not in log.voters and disk not in log.learners:
                kind = ADD_LEARNER
            if kind != DEMOTE or (len(log.voters) > 2 and self.rng.chance(1, 4)):
                log.propose_change(kind, disk, self.now)
                self.turn(machine)

    # What is checked

    def turn(self, machine: Machine) -> None:
        """End the turn of a member."""
        log = machine.log
        assert log is not None
        if self.compacts and self.rng.chance(1, 10):
            log._entries = 1 << 20 if log.index > log._raft.log.snapshot.index else 0
        log.collect(machine.writer, self.now)
        batch = machine.writer.take()
        if batch is not None:
            machine.pending.append(batch)
        for to, data in log.out:
            self.check_message(machine, data)
            self.pool.append((machine.disk, to, data))
            if decode_message(data[2:]).kind == VOTE:
                self.asked.append((machine.disk, to, data))
        log.out.clear()
        if log.fault:
            raise Violation(log.fault)
        if log.restored:
            self.restores += 1
        log.restored = False
        self.check_results(machine, log)
        self.check_state(log)
        if log.is_leader:
            self.said.append((log.lineage, log.term, log.commit))
            if self.leaders.setdefault((log.lineage, log.term), machine.disk) != machine.disk:
                raise Violation(f"term {log.term} of lineage {log.lineage} has two leaders")

    def check_results(self, machine: Machine, log: ConfigurationLog) -> None:
        """What is told of proposals is so."""
        self.commands += len(log.results)
        for result in log.results:
            if isinstance(result.command, Put) and result.is_accepted() and log.lineage == TRUNK:
                if self.keys.get(result.command.key) == LOST:
                    raise Violation(f"{result.command.key} is applied, and was called lost")
        log.results.clear()
        for fate in log.fates:
            key = machine.handles.pop(fate.handle, "")
            if key:
                self.keys[key] = fate.outcome
                if fate.outcome == LOST and key in log.configuration.settings.values:
                    raise Violation(f"{key} is there, and is called lost")
                if fate.outcome == COMMITTED and (fate.result is None or fate.result.index != fate.index):
                    raise Violation(f"{fate!r} has no result")
        log.fates.clear()

    def check_state(self, log: ConfigurationLog) -> None:
        """All members have the same configuration at an index."""
        configuration: ClusterConfiguration = log.configuration
        if not configuration.is_founded():
            return
        encoded = encode_configuration(configuration)
        known = self.states.setdefault((log.lineage, configuration.index), encoded)
        if known != encoded:
            raise Violation(f"two configurations at {configuration.index} of lineage {log.lineage}")

    def check_message(self, machine: Machine, data: bytes) -> None:
        """A vote is given once in a term; what is confirmed is in the store."""
        lineage = lineage_of(data)
        message = decode_message(data[2:])  # the lineages of a run take two bytes
        if message.verdict != GRANTED:
            return
        if message.kind == VOTE_RESPONSE:
            place = (machine.disk, lineage, message.term)
            if self.votes.setdefault(place, message.to) != message.to:
                raise Violation(f"{machine.disk} votes twice in term {message.term} of lineage {lineage}")
            stored = read_lineage(machine.store, lineage).hard_state
            if stored.term < message.term or (stored.term == message.term and stored.vote != message.to):
                raise Violation(f"{machine.disk} speaks of a vote that is not durable")
        elif message.kind == APPEND_RESPONSE:
            found = read_lineage(machine.store, lineage)
            last = found.entries[-1].index if found.entries else found.snapshot.index
            if last < message.index and found.hard_state.term <= message.term:
                raise Violation(f"{machine.disk} confirms {message.index}, its store ends at {last}")

    def check_leases(self) -> None:
        """One leader at most may grant leases."""
        granting = [one for one in self.machines if one.log is not None and one.log.may_grant(self.now)]
        trunk = [one.disk for one in granting if one.log is not None and one.log.lineage == TRUNK]
        if len(trunk) > 1:
            raise Violation(f"{trunk} may grant leases at the same time")

    def heal(self) -> None:
        """Everything is reached again: all members that follow the log end with the same configuration."""
        self.cut = []
        self.loss = 0
        for machine in self.machines:
            if machine.log is not None and machine.log.lineage != TRUNK:
                self.fork_or_return(machine)
        self.voters = 0
        rounds: list[int] = []

        def done() -> bool:
            rounds.append(1)
            return len(rounds) > 300

        self.steady(done)
        leaders = [one for one in self.machines if one.log is not None and one.log.is_leader]
        if len(leaders) != 1:
            raise Violation(f"{len(leaders)} leaders when everything is healed")
        leader = leaders[0].log
        assert leader is not None
        settings = leader.configuration.settings.values
        for key, outcome in self.keys.items():
            if outcome == COMMITTED and key not in settings:
                raise Violation(f"{key} was committed, and is not there")
            if outcome == LOST and key in settings:
                raise Violation(f"{key} was called lost, and is there")
        for machine in self.machines:
            log = machine.log
            assert log is not None
            if machine.disk in leader.voters + leader.learners and log.index != leader.index:
                raise Violation(f"{machine.disk} is at {log.index}, the leader at {leader.index}")
            if read_lineage(machine.store, log.lineage).hard_state.term == 0 and log.index:
                raise Violation(f"{machine.disk} has no rows")
