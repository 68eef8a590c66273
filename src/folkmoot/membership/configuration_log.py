"""The configuration log at one member: commands and messages go in, the configuration comes out.

It joins Raft, the transition of the configuration, and the rows of the log in the node's store. A turn of the node is
any number of inputs and one call of `collect`, which puts the rows into the batch of the turn. When the batch is
durable, `written` is an input of a later turn. Messages that may not leave before a write is durable are kept back
until then, so the node sends whatever is in `out`. Time is `now`, nanoseconds of a monotonic clock that goes on while
the machine is suspended.

What a member applies is committed, and durable at itself. A member that meets an entry of a newer build can not go on:
it falls silent, and `fault` says why.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import varint
from folkmoot.membership.cluster_member import ID_MAX, take_id
from folkmoot.membership.command import Command, Found, encode_command
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.lease import certain_ns
from folkmoot.membership.log_rows import put_write
from folkmoot.membership.transition import Result, Transition
from folkmoot.peer.cursor import Cursor
from folkmoot.raft import configuration as raft_configuration
from folkmoot.raft.entry import DATA, Entry, HardState, Snapshot
from folkmoot.raft.error import Malformed
from folkmoot.raft.message import decode_message, encode_message
from folkmoot.raft.option import Options
from folkmoot.raft.raft import Raft
from folkmoot.raft.ready import ACCEPTED, COMMITTED, UNCONFIRMED, UNKNOWN, Outcome, Proposal
from folkmoot.raft.recovery import Persisted
from folkmoot.raft.role import LEADER
from folkmoot.store.writer import Writer

__all__ = ["SNAPSHOT_BYTES", "SNAPSHOT_ENTRIES", "ConfigurationLog", "Fate", "lineage_of"]

SNAPSHOT_ENTRIES: Final = 1000
SNAPSHOT_BYTES: Final = 1 << 20
"""A snapshot replaces so many entries, or so many bytes of them, and at least as many bytes as it has itself."""

_DUE: Final = 0  # a time that has passed


class Fate:
    """What became of a proposal of this member.

    Args:
        handle: That of the proposal.
        index: Its place in the log.
        outcome: COMMITTED, LOST or UNKNOWN (`raft/ready`). Unknown is whether it was committed, or how it was judged: a
            snapshot has replaced the entries there.
        result: How the transition judged a command that is committed; None for a change of the voters.
    """

    def __init__(self, handle: int, index: int, outcome: int, result: Result | None) -> None:
        self.handle = handle
        self.index = index
        self.outcome = outcome
        self.result = result

    def is_accepted(self) -> bool:
        """Tell whether it is committed, and was not refused."""
        return self.outcome == COMMITTED and (self.result is None or self.result.is_accepted())

    def __repr__(self) -> str:
        return f"{Outcome(self.handle, self.index, self.outcome)!r}{f' {self.result!r}' if self.result else ''}"


def lineage_of(data: bytes) -> int:
    """Return the lineage to which a message belongs; raises ValueError."""
    return take_id(Cursor(data, "a message of the configuration log"), 1, "lineage")


class ConfigurationLog:
    """The log of one lineage at one member.

    Args:
        disk: The identity of the member.
        lineage: The identity of the log; every message carries it.
        options: Times and limits of Raft.
        persisted: What is on the disk (`log_rows.read_lineage`), when all that was written there is durable.
        seed: Election timeouts are drawn from it; different at each member.
        now: The current time.
        planted: Bugs of Raft (`raft/planted`), for tests.

    Raises:
        CorruptStore: The rows cannot have been written by a member, or are of a newer build.
    """

    def __init__(
        self,
        disk: int,
        lineage: int,
        options: Options,
        persisted: Persisted,
        seed: int,
        now: int,
        planted: list[str] | None = None,
    ) -> None:
        assert 0 < lineage <= ID_MAX, "a lineage has an identity"
        self.disk = disk
        self.lineage = lineage
        self.configuration = _configuration_in(persisted.snapshot, lineage)
        # Taken by the owner, which clears them:
        self.out: list[tuple[int, bytes]] = []  # messages, and the disks of the members to which they go
        self.results: list[Result] = []  # of the commands that were applied, in their order
        self.fates: list[Fate] = []  # of proposals of this member
        self.restored: bool = False  # a snapshot has replaced the configuration: the results do not say what changed
        self.fault: str = ""  # why this member cannot go on
        self._raft = Raft(disk, options, persisted, persisted.snapshot.index, seed, now, planted or [])
        self._transition = Transition(self.configuration)
        self._election_ns = options.election_ns
        self._head: bytes = varint(lineage)
        self._is_due: bool = True  # something has happened since the effects were taken
        self._commands: list[int] = []  # handles of proposals that are commands
        self._prepared: tuple[int, int] | None = None  # a change of voters (kind, disk) that waits for answers
        self._prepared_round: int = 0
        self._prepared_until: int = 0
        self._writes: list[tuple[int, int]] = []  # under way: (token of the batch, token of Raft), ascending
        self._entries: int = 0  # applied since the snapshot
        self._bytes: int = 0
        self._snapshot_bytes: int = len(persisted.snapshot.data)

    # The beginning of a lineage

    @staticmethod
    def found(command: Found, disk: int) -> Persisted:
        """Return the state in which the founder of a cluster begins, to be written by `log_rows.put_founding`.

        It must be durable before the log is opened. Raises ValueError if the command cannot be the first one.
        """
        configuration = ClusterConfiguration()
        result = Transition(configuration).apply_command(1, command)
        if not result.is_accepted():
            raise ValueError(f"no cluster is founded by {command!r}: {result.text()}")
        return ConfigurationLog.fork(configuration, disk)

    @staticmethod
    def fork(configuration: ClusterConfiguration, disk: int) -> Persisted:
        """Return the state in which the founder of a lineage begins, with a configuration of `fork.fork_of`.

        The entries of the lineage follow its index, which is behind the entry of the parent from which it descends.
        """
        assert configuration.is_founded(), "a lineage is of a cluster"
        assert configuration.index > configuration.parent_index, "a lineage goes on behind its parent's entry"
        assert disk in configuration.members, "the founder is a member"
        voters = raft_configuration.Configuration([disk], [])
        snapshot = Snapshot(configuration.index, 1, voters, encode_configuration(configuration))
        return Persisted(HardState(1, 0, snapshot.index), snapshot, [])

    # What is known

    @property
    def index(self) -> int:
        """The last entry of the log that is applied."""
        return self._raft.log.applied

    @property
    def commit(self) -> int:
        """The last entry of the log that is known to be committed."""
        return self._raft.log.commit

    @property
    def last_index(self) -> int:
        """The last entry of this member's log, committed or not."""
        return self._raft.log.last_index()

    @property
    def last_term(self) -> int:
        """The term of that entry."""
        return self._raft.log.last_term()

    @property
    def term(self) -> int:
        """The current term of Raft."""
        return self._raft.term

    @property
    def leader(self) -> int:
        """The disk of the leader of the log, as far as it is known; 0: none is."""
        return 0 if self.fault else self._raft.leader

    @property
    def is_leader(self) -> bool:
        """Whether this member leads the log."""
        return self._raft.role == LEADER and not self.fault

    @property
    def voters(self) -> list[int]:
        """The disks that vote, ascending, in the newest configuration of Raft that this member has."""
        return self._raft.log.configuration().voters

    def needs(self, disk: int) -> bool:
        """Whether a disk votes in the newest configuration of Raft, or in the committed one, which may come back."""
        log = self._raft.log
        return log.configuration().is_voter(disk) or log.configuration_at(log.commit).is_voter(disk)

    def is_quorum(self, disks: list[int]) -> bool:
        """Whether disks are a quorum in the newest configuration of Raft, and in the committed one, as in `needs`."""
        log = self._raft.log
        return log.configuration().is_quorum(disks) and log.configuration_at(log.commit).is_quorum(disks)

    @property
    def voters_term(self) -> int:
        """The term in which these became the voters, or a later one that is not later than the end of the log."""
        return self._raft.log.voters_term()

    @property
    def learners(self) -> list[int]:
        """The disks that learn, ascending, in the newest configuration of Raft that this member has."""
        return self._raft.log.configuration().learners

    @property
    def is_changing(self) -> bool:
        """Whether the newest configuration of Raft is not known to be committed: no other change may follow yet.

        Also while a change is being prepared.
        """
        return self._prepared is not None or self._raft.log.has_pending_change()

    @property
    def is_removed(self) -> bool:
        """Whether the newest configuration of Raft is committed, and is without this member."""
        return self._raft.is_removed()

    @property
    def lost_suffix(self) -> bool:
        """Whether entries that this member has confirmed are gone: it is silent, and needs another identity."""
        return self._raft.lost_suffix

    @property
    def outdated_leader(self) -> int:
        """The disk of a leader that lacks what is committed here; 0: none was met."""
        return self._raft.outdated_leader

    @property
    def refused_snapshot_bytes(self) -> int:
        """The size of a snapshot that was too large for this member, without which it is behind; 0: none was."""
        return self._raft.refused_snapshot_bytes

    def acknowledged(self, disk: int) -> int:
        """Return the index up to which a member has confirmed the log to this leader; 0 if that is not known."""
        return self._raft.acknowledged(disk)

    def lease_ns(self) -> int:
        """Return the time until which no other member can be elected; 0: this member has no such time."""
        return 0 if self.fault else self._raft.lease_ns()

    def predecessor_ns(self) -> int:
        """Return for how long after the election of this leader its predecessor may have answered heartbeats."""
        left_ns = self._raft.predecessor_ns()
        return certain_ns(left_ns) if left_ns else 0

    def may_grant(self, now: int) -> bool:
        """Tell whether this leader may answer heartbeats of members (`lease.GrantedLeases.heard`).

        Nobody else can be elected, and everything that earlier leaders proposed is applied.
        """
        start = self._raft.term_start()
        return start > 0 and self._raft.log.applied >= start and now < self.lease_ns()

    def __repr__(self) -> str:
        return f"lineage {self.lineage}: {self._raft!r}"

    # Requests

    def propose(self, command: Command, now: int) -> Proposal:
        """Propose a command, if this member leads; what becomes of it is told by `fates`."""
        self._is_due = True
        proposal = self._raft.propose(encode_command(command), now)
        if proposal.handle:
            self._commands.append(proposal.handle)
        return proposal

    def propose_change(self, kind: int, disk: int, now: int) -> Proposal:
        """Propose a change of voters and learners (`raft/configuration`), if this member leads.

        A change of voters counts from its append on, and can never be committed if those that are to confirm it have
        died just before, and their disks are lost. So a quorum of the voters that there will be has to answer first to
        what is sent now (UNCONFIRMED); what they answered a heartbeat ago says little.
        """
        self._is_due = True
        before = self._raft.log.configuration()
        after = before.after(kind, disk)
        self._prepared = None
        if after is None or after.voters == before.voters or after.voters == [self.disk]:
            return self._raft.propose_change(kind, disk, b"", now)
        refused, of_round = self._raft.prepare_change(kind, disk, now)
        if refused == ACCEPTED:
            self._prepared = (kind, disk)
            self._prepared_round = of_round
            self._prepared_until = now + self._election_ns
        return Proposal(0, 0, refused or UNCONFIRMED, self._raft.leader)

    def _go_on_with_change(self, now: int) -> None:
        """Propose the change that was prepared when its answers are there; drop it if they do not come."""
        if self._prepared is None:
            return
        kind, disk = self._prepared
        if self._raft.is_prepared(kind, disk, self._prepared_round):
            self._prepared = None
            self._raft.propose_change(kind, disk, b"", now)
        elif now >= self._prepared_until or not self.is_leader:
            self._prepared = None

    def transfer(self, disk: int, now: int) -> int:
        """Hand the leadership of the log to another voter; returns ACCEPTED or a reason (`raft/ready`)."""
        self._is_due = True
        return self._raft.transfer(disk, now)

    def ended(self, disk: int, now: int) -> None:
        """The process of `disk` is proved to have ended: wait for nothing if it leads the log, see `Raft.ended`."""
        self._is_due = True
        self._raft.ended(disk, now)

    def raise_term(self, term: int, now: int) -> None:
        """Enter a later term: what this member has voted and confirmed, and forgotten, is of earlier ones."""
        self._is_due = True
        self._raft.raise_term(term, now)

    def connected(self, disk: int, now: int) -> None:
        """A member is reached again: a leader of the log finds out at once what it lacks."""
        self._is_due = True
        self._raft.attend(disk, now)

    def learn_commit(self, term: int, commit: int, now: int) -> None:
        """An answer to a heartbeat of the membership tells what the leader of `term` has committed."""
        if commit > self._raft.log.commit:
            self._is_due = True
            self._raft.learn_commit(term, commit, now)

    # Messages, time and disk

    def step(self, sender: int, data: bytes, now: int) -> None:
        """Take a message of the member `sender`; one of another lineage is ignored.

        Raises ValueError if no correct member sends it. Nothing has changed then.
        """
        lineage = lineage_of(data)
        if lineage != self.lineage or self.fault:
            return
        try:
            message = decode_message(data[len(self._head) :])
        except Malformed as fault:
            raise ValueError(str(fault)) from None
        if message.sender != sender:
            raise ValueError(f"the member {sender} sends a message of {message.sender}")
        self._is_due = True
        self._raft.step(message, now)
        self._go_on_with_change(now)

    def wake(self, now: int) -> None:
        """Do what is due; early calls do nothing."""
        if now >= self._raft.deadline():
            self._is_due = True
            self._raft.wake(now)
            self._go_on_with_change(now)

    def deadline(self) -> int:
        """Return when the next turn is due at the latest; a time that has passed if there is something to do now."""
        return _DUE if self._is_due and not self.fault else self._raft.deadline()

    def written(self, token: int, now: int) -> None:
        """The batch with this token, and all before it, are durable."""
        durable = 0
        while self._writes and self._writes[0][0] <= token:
            durable = self._writes[0][1]
            del self._writes[0]
        if durable:
            self._is_due = True
            self._raft.persisted(durable, now)

    # The end of a turn

    def collect(self, writer: Writer, now: int) -> None:
        """Put the rows into the batch of this turn, and messages, results and fates into their lists."""
        if not self._is_due or self.fault:
            return
        self._compact(now)
        ready = self._raft.ready()
        self._is_due = ready.more
        if ready.write is not None:
            put_write(writer, self.lineage, ready.write)
            self._writes.append((writer.token, ready.write.token))
        if ready.restore is not None:
            self._restore(ready.restore)
        applied: dict[int, Result] = {}
        for entry in ready.apply:
            self._apply(entry, applied)
        if not self._can_go_on():
            return
        for message in ready.messages:
            self.out.append((message.to, self._head + encode_message(message)))
        for outcome in ready.outcomes:
            self._decide(outcome, applied)

    def _can_go_on(self) -> bool:
        return not self.fault

    def _restore(self, snapshot: Snapshot) -> None:
        """Take over the configuration of a snapshot."""
        try:
            self.configuration = _configuration_in(snapshot, self.lineage)
        except CorruptStore as fault:
            self.fault = str(fault)
            return
        self._transition = Transition(self.configuration)
        self.results.clear()
        self.restored = True
        self._began_anew(len(snapshot.data))

    def _apply(self, entry: Entry, applied: dict[int, Result]) -> None:
        self._entries += 1
        self._bytes += entry.cost()
        if entry.kind != DATA or self.fault:
            return
        try:
            result = self._transition.apply(entry.index, entry.data)
        except ValueError as fault:
            self.fault = f"entry {entry.index} of the configuration log: {fault}"
            return
        assert self.configuration.index == entry.index, "a command is applied where it is"
        applied[entry.index] = result
        self.results.append(result)

    def _decide(self, outcome: Outcome, applied: dict[int, Result]) -> None:
        """Tell what became of a proposal."""
        if outcome.handle not in self._commands:
            self.fates.append(Fate(outcome.handle, outcome.index, outcome.result, None))
            return
        self._commands.remove(outcome.handle)
        found = applied.get(outcome.index) if outcome.result == COMMITTED else None
        result = UNKNOWN if outcome.result == COMMITTED and found is None else outcome.result
        self.fates.append(Fate(outcome.handle, outcome.index, result, found))

    def _compact(self, now: int) -> None:
        """Replace the entries that were applied by a snapshot, when they are many."""
        if self._entries < SNAPSHOT_ENTRIES and self._bytes < max(SNAPSHOT_BYTES, self._snapshot_bytes):
            return
        log = self._raft.log
        if log.applied == log.snapshot.index:
            return  # the snapshot of another member has just replaced them
        data = encode_configuration(self.configuration)
        self._raft.compact(log.applied, data, now)
        self._began_anew(len(data))

    def _began_anew(self, size: int) -> None:
        """Count from a snapshot of `size` bytes on."""
        self._entries = 0
        self._bytes = 0
        self._snapshot_bytes = size


def _configuration_in(snapshot: Snapshot, lineage: int) -> ClusterConfiguration:
    """Return the configuration in a snapshot, or one before the first entry; raises CorruptStore."""
    if snapshot.index == 0:
        return ClusterConfiguration()
    try:
        configuration = decode_configuration(snapshot.data)
        if configuration.lineage != lineage:
            raise ValueError(f"it is of lineage {configuration.lineage}, not of {lineage}")
        if configuration.index > snapshot.index:
            raise ValueError(f"it has entry {configuration.index}")
    except ValueError as fault:
        raise CorruptStore(f"the configuration at {snapshot.index} of lineage {lineage}: {fault}") from None
    return configuration
