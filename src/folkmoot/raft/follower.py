"""The follower's part: taking entries and commit indexes over from the leader, and reading its snapshots in chunks.

A snapshot is read by the one that needs it: it asks for one chunk after another, and again for the one it lacks. So the
sender keeps no state per chunk, and a lost message costs one chunk and not the transfer.
"""

from __future__ import annotations

from folkmoot.raft.entry import Snapshot, decode_snapshot
from folkmoot.raft.error import Malformed
from folkmoot.raft.member import Member
from folkmoot.raft.message import (
    APPEND_RESPONSE,
    CHUNK_REQUEST,
    GRANTED,
    HEARTBEAT_RESPONSE,
    REFUSED,
    Message,
)

__all__ = ["Follower"]


class Follower:
    """The state of a member that concerns what it takes over from others."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.restored: Snapshot | None = None  # what the state machine has to take before it goes on
        self.lost_suffix = False  # entries that this member has confirmed are gone: it must not go on
        self.outdated_leader: int = 0  # a leader that lacks what is committed here
        self.refused_bytes: int = 0  # the size of a snapshot that exceeds the limit
        self._round: int = 0  # the newest of the leader in the current term
        self._matched: int = 0  # this log is the same as the leader's up to here, as was found in the current term
        self._source: int = 0  # the member that sends a snapshot; 0: none
        self._index: int = 0
        self._term: int = 0
        self._size: int = 0
        self._parts: list[bytes] = []
        self._length: int = 0

    def new_leader(self) -> None:
        """Forget what belongs to the leader of an earlier term; a snapshot that is being read may go on."""
        self._round = 0
        self._matched = 0

    # Entries

    def append(self, message: Message) -> None:
        """Take entries over if the one before them matches (dissertation, 3.5).

        Without a round, the leader knows that this log matches, tells the commit index, and wants no answer.
        """
        member = self._member
        log = member.log
        self._round = max(self._round, message.round)
        entries = message.entries
        if not member.planted.truncate_committed and self._conflicts(message):
            # No leader lacks what is committed: its disk was set back. It gets no answer by which it could go on.
            self.outdated_leader = message.sender
            return
        if message.index + len(entries) < log.commit and not member.planted.truncate_committed:
            self._confirm(log.commit)
            return
        index = message.index
        log_term = message.log_term
        if index < log.commit and not member.planted.truncate_committed:
            # What is committed matches; it may be compacted.
            entries = entries[log.commit - index :]
            index = log.commit
            log_term = log.term_at(index)
            if entries and entries[0].term < log_term:
                return  # no leader has such a log
        if log.term_at(index) != log_term:
            self._refuse(index, log_term)
            return
        if member.planted.truncate_committed and index < log.last_index():
            log.truncate(index + 1)
        last = index + len(entries)
        log.merge(entries)
        member.outbox.log_dirty = not log.is_saved()
        # Beyond `last`, this log may differ from the leader's.
        log.commit_to(min(message.commit, last))
        if message.round:
            self._confirm(last)

    def _conflicts(self, message: Message) -> bool:
        """Tell whether an append has other terms than this log has, where that is committed."""
        log = self._member.log
        term = message.log_term
        for at in range(len(message.entries) + 1):
            index = message.index + at
            if at:
                term = message.entries[at - 1].term
            if index > log.commit:
                return False
            known = log.term_at(index)
            if known >= 0 and known != term:
                return True
        return False

    def _confirm(self, index: int) -> None:
        """Tell the leader that this log matches up to `index`, when it is durable so far."""
        assert 0 <= index <= self._member.log.last_index(), "a member confirms what it has"
        member = self._member
        self._matched = max(self._matched, index)
        answer = member.message(APPEND_RESPONSE, member.leader)
        answer.verdict = GRANTED
        answer.index = index
        answer.round = self._round
        answer.promise = member.promise()
        member.outbox.send(answer, index > member.log.durable and not member.planted.append_unsaved)

    def _refuse(self, index: int, log_term: int) -> None:
        """Tell the leader that the entry at `index` does not match, and where the logs may match."""
        assert index >= self._member.log.commit, "what is committed matches"
        member = self._member
        answer = member.message(APPEND_RESPONSE, member.leader)
        answer.verdict = REFUSED
        answer.commit = index
        answer.index = member.log.hint(index, log_term)
        answer.log_term = max(0, member.log.term_at(answer.index))
        answer.round = self._round
        answer.promise = member.promise()
        if answer.index >= member.log.commit:  # what is committed matches, so no leader would be told otherwise
            member.send(answer)

    def heartbeat(self, message: Message) -> None:
        """Take the commit index over, and answer."""
        assert self._member.leader == message.sender, "only the leader has a heartbeat"
        member = self._member
        self._round = max(self._round, message.round)
        if message.commit > member.log.last_index():
            # The leader sends what this member has confirmed in this term, and no more.
            self.lost_suffix = True
            return
        member.log.commit_to(message.commit)
        answer = member.message(HEARTBEAT_RESPONSE, message.sender)
        answer.round = message.round
        answer.promise = member.promise()
        member.send(answer)

    def learn_commit(self, commit: int) -> None:
        """Take over a commit index of the leader as far as this log matches; ask for what is missing before it."""
        member = self._member
        assert member.leader, "a commit index is of a leader"
        matched = max(self._matched, member.log.commit)
        assert matched <= member.log.last_index(), "what matches is in the log"
        member.log.commit_to(min(commit, matched))
        if commit > matched and self._source == 0:
            answer = member.message(HEARTBEAT_RESPONSE, member.leader)
            answer.round = self._round
            answer.promise = member.promise()
            member.send(answer)

    # Snapshots

    def offer(self, message: Message) -> None:
        """Begin to read the snapshot that the leader offers, or go on."""
        assert self._member.leader == message.sender, "only the leader offers"
        member = self._member
        self._round = max(self._round, message.round)
        if message.index <= member.log.commit and not member.planted.snapshot_back:
            self._confirm(member.log.commit)
            return
        self.begin(message.sender, message.index, message.log_term, message.size)

    def begin(self, source: int, index: int, term: int, size: int) -> None:
        """Read the snapshot of a member from where the reading of it has come to; too large a one is not read."""
        if index == 0:
            return
        if size > self._member.options.snapshot_bytes:
            self.refused_bytes = size
            return
        same = self._source == source and self._index == index and self._term == term and self._size == size
        if not same:
            self._source = source
            self._index = index
            self._term = term
            self._size = size
            self._parts = []
            self._length = 0
        self._ask()

    def _ask(self) -> None:
        assert self._length <= self._size or self._size == 0, "no more is read than there is"
        message = self._member.message(CHUNK_REQUEST, self._source)
        message.index = self._index
        message.log_term = self._term
        message.size = self._length
        self._member.send(message)

    def chunk(self, message: Message) -> bool:
        """Take one part of a snapshot; True if it was the last, and the log goes as far as the snapshot now."""
        fits = message.sender == self._source and message.index == self._index and message.log_term == self._term
        if not fits or message.size != self._length or not message.data:
            return False
        self._parts.append(message.data)
        self._length += len(message.data)
        if self._length < self._size:
            self._ask()
            return False
        encoded = b"".join(self._parts)
        self._source = 0
        self._parts = []
        try:
            snapshot = decode_snapshot(encoded)
        except Malformed:
            return False  # it is offered again
        if snapshot.index != self._index or snapshot.term != self._term:
            return False
        self._install(snapshot)
        return True

    def _install(self, snapshot: Snapshot) -> None:
        member = self._member
        log = member.log
        if log.term_at(snapshot.index) == snapshot.term and not member.planted.snapshot_back:
            log.commit_to(snapshot.index)  # the log has it: what follows stays
        elif snapshot.index > log.commit or member.planted.snapshot_back:
            log.restore(snapshot)
            member.outbox.log_dirty = True
            self.restored = snapshot
        assert log.commit >= snapshot.index, "a snapshot never goes back"

    def installed(self) -> None:
        """Tell the leader how far this log goes after a snapshot."""
        assert self._source == 0, "the whole snapshot is here"
        self._confirm(self._member.log.commit)
