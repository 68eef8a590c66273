"""The restart from what is on the disk: everything that a node can have written passes, nothing else does.

What this cannot see is a suffix that is missing *cleanly*: a disk that lost its last acknowledged writes, or a folder
that was restored from a backup, is a valid older state. The caller must compare the end of the log with what the member
has acknowledged (`Raft.acknowledged` at the leader, `Raft.lost_suffix` at the member), or give the disk an identity and
take a disk that went back for a new member: with the old id it could vote twice in one term.
"""

from __future__ import annotations

from folkmoot.raft.configuration import EMPTY, Configuration, decode_change
from folkmoot.raft.entry import CHANGE, Entry, HardState, Snapshot
from folkmoot.raft.error import DamagedState, Malformed
from folkmoot.raft.log import Log

__all__ = ["Persisted", "recover"]


class Persisted:
    """What a member has on its disk: all of it, in the order of indexes. A new member has `Persisted.nothing()`."""

    def __init__(self, hard_state: HardState, snapshot: Snapshot, entries: list[Entry]) -> None:
        self.hard_state = hard_state
        self.snapshot = snapshot
        self.entries = entries

    @staticmethod
    def nothing() -> Persisted:
        """Return the state of a member that has never heard from a leader."""
        return Persisted(HardState(0, 0, 0), Snapshot(0, 0, EMPTY, b""), [])

    @staticmethod
    def founder(snapshot: Snapshot) -> Persisted:
        """Return the state in which a first voter begins; it must be durable before the voter is started."""
        return Persisted(HardState(snapshot.term, 0, snapshot.index), snapshot, [])


def recover(persisted: Persisted, applied: int) -> Log:
    """Return the log; raises DamagedState if it cannot have been written by this package.

    Args:
        persisted: What was found.
        applied: The last index that the state machine has applied durably; 0 if it begins with the snapshot.
    """
    hard = persisted.hard_state
    snapshot = persisted.snapshot
    entries = persisted.entries
    _check_snapshot(hard, snapshot)
    _check_entries(hard, snapshot, entries)
    _check_configurations(snapshot, entries)
    last = entries[-1].index if entries else snapshot.index
    if entries and last < snapshot.index:
        raise DamagedState(f"the log ends at {last}, before its snapshot at {snapshot.index}")
    if hard.commit > last:
        raise DamagedState(f"the log ends at {last}, but {hard.commit} was committed: its end is lost")
    if applied > last:
        raise DamagedState(f"the log ends at {last}, but {applied} was applied: its end is lost")
    applied = max(applied, snapshot.index)
    return Log(snapshot, list(entries), max(hard.commit, applied), applied)


def _check_snapshot(hard: HardState, snapshot: Snapshot) -> None:
    """Refuse a snapshot that no leader of a term up to the member's can have made."""
    if (snapshot.index == 0) != (snapshot.term == 0) or (snapshot.index == 0) != snapshot.configuration.same(EMPTY):
        raise DamagedState(f"no member writes the snapshot {snapshot!r}")
    if snapshot.term > hard.term:
        raise DamagedState(
            f"the snapshot is of term {snapshot.term}, the member of term {hard.term}: it is lost or old"
        )
    if hard.term == 0 and hard.vote:
        raise DamagedState("there is a vote without a term")


def _check_entries(hard: HardState, snapshot: Snapshot, entries: list[Entry]) -> None:
    """Refuse entries with gaps, with falling terms, of terms to come, or that do not fit the snapshot."""
    if entries and entries[0].index > snapshot.index + 1:
        raise DamagedState(f"entries from {snapshot.index + 1} to {entries[0].index - 1} are missing")
    last_index = 0
    last_term = 0
    for entry in entries:
        if last_index and entry.index != last_index + 1:
            raise DamagedState(f"entry {entry.index} stands behind entry {last_index}")
        if entry.term < last_term:
            raise DamagedState(f"entry {entry.index} is of term {entry.term}, the one before it of term {last_term}")
        if entry.index == snapshot.index and entry.term != snapshot.term:
            raise DamagedState(f"entry {entry.index} is of term {entry.term}, its snapshot of term {snapshot.term}")
        if entry.index > snapshot.index and entry.term < snapshot.term:
            raise DamagedState(
                f"entry {entry.index} is of term {entry.term}, the snapshot before it of {snapshot.term}"
            )
        last_index = entry.index
        last_term = entry.term
    if last_term > hard.term:
        raise DamagedState(
            f"entry {last_index} is of term {last_term}, the member of term {hard.term}: it is lost or old"
        )


def _check_configurations(snapshot: Snapshot, entries: list[Entry]) -> None:
    """Refuse configurations that do not follow from each other by their changes."""
    configuration: Configuration = snapshot.configuration
    for entry in entries:
        if entry.kind != CHANGE or entry.index <= snapshot.index:
            continue
        try:
            change = decode_change(entry.data)
        except Malformed as fault:
            raise DamagedState(f"entry {entry.index} is damaged: {fault}") from fault
        expected = configuration.after(change.kind, change.peer)
        if expected is None or not expected.same(change.configuration):
            raise DamagedState(f"entry {entry.index} changes {configuration!r} into {change.configuration!r}")
        configuration = change.configuration
