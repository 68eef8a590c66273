"""What a member gives out at the end of a turn: one write, messages, entries to apply, answers."""

from __future__ import annotations

from typing import Final

from folkmoot.raft.entry import Entry, HardState, Snapshot
from folkmoot.raft.message import Message

__all__ = [
    "ACCEPTED",
    "BUSY",
    "COMMITTED",
    "EARLY",
    "INVALID",
    "LOST",
    "NOT_CAUGHT_UP",
    "NOT_LEADER",
    "NO_QUORUM",
    "Outcome",
    "PENDING",
    "Proposal",
    "REASONS",
    "ReadState",
    "Ready",
    "TOO_LARGE",
    "TRANSFERRING",
    "UNCONFIRMED",
    "UNKNOWN",
    "Write",
]

ACCEPTED: Final = 0
NOT_LEADER: Final = 1
TOO_LARGE: Final = 2
BUSY: Final = 3
TRANSFERRING: Final = 4
EARLY: Final = 5
PENDING: Final = 6
INVALID: Final = 7
NOT_CAUGHT_UP: Final = 8
NO_QUORUM: Final = 9
UNCONFIRMED: Final = 10
REASONS: Final[dict[int, str]] = {
    ACCEPTED: "accepted",
    NOT_LEADER: "this member does not lead: ask the leader",
    TOO_LARGE: "the proposal exceeds the limit for one",
    BUSY: "too much is not committed yet: try again later",
    TRANSFERRING: "leadership is being handed over: try again later",
    EARLY: "the leader has committed nothing in its term yet: try again later",
    PENDING: "an earlier change of the configuration is not committed yet: try again later",
    INVALID: "the change does not fit the configuration",
    NOT_CAUGHT_UP: "the member lacks too much of the log: try again later",
    NO_QUORUM: "no quorum of the configuration after the change is in contact",
    UNCONFIRMED: "a quorum of the configuration after the change has to answer once more: it follows then",
}
"""Why a request was refused, as texts for people."""

COMMITTED: Final = 1  # it is in the log of the cluster, at the index
LOST: Final = 2  # it is not, and never will be: another entry has its place
UNKNOWN: Final = 3  # the log at its place is compacted: the state machine has to tell


class Proposal:
    """The answer to a proposal: its handle and index, or the reason of refusal and the leader (0: not known)."""

    def __init__(self, handle: int, index: int, refused: int, leader: int) -> None:
        assert (handle > 0) == (refused == ACCEPTED), "a proposal has a handle or a reason"
        self.handle = handle
        self.index = index
        self.refused = refused
        self.leader = leader

    def __repr__(self) -> str:
        if self.refused:
            return f"refused: {REASONS[self.refused]} (leader {self.leader})"
        return f"proposal {self.handle} at {self.index}"


class Outcome:
    """What became of an accepted proposal."""

    def __init__(self, handle: int, index: int, result: int) -> None:
        assert COMMITTED <= result <= UNKNOWN, "the result is known"
        self.handle = handle
        self.index = index
        self.result = result

    def __repr__(self) -> str:
        return f"proposal {self.handle} at {self.index} {['', 'committed', 'lost', 'unknown'][self.result]}"


class ReadState:
    """The answer to a read: serve it when `index` is applied; if not `done`, no answer came: ask again."""

    def __init__(self, context: int, index: int, done: bool) -> None:
        assert done or index == 0, "what failed has no index"
        self.context = context
        self.index = index
        self.done = done

    def __repr__(self) -> str:
        return f"read {self.context} at {self.index}" if self.done else f"read {self.context} failed"


class Write:
    """One atomic batch.

    In this order: store `snapshot` and `hard_state`, remove entries before `drop_before` and from `truncate_from` on
    (0: none), store `entries`. When all of it is durable: `Raft.persisted(token)`. `first` and `last` are the ends of
    the log after it (`first` is `last` + 1 if it has no entry) and `snapshot_index` is where its snapshot stands, for a
    store that checks that it has them all.
    """

    def __init__(self, token: int) -> None:
        assert token > 0, "tokens begin at 1"
        self.token = token
        self.hard_state: HardState | None = None
        self.snapshot: Snapshot | None = None
        self.drop_before: int = 0
        self.truncate_from: int = 0
        self.entries: list[Entry] = []
        self.first: int = 1
        self.last: int = 0
        self.snapshot_index: int = 0


class Ready:
    """The effects of a turn; messages may leave at once, also before the write."""

    def __init__(self) -> None:
        self.write: Write | None = None
        self.messages: list[Message] = []
        self.restore: Snapshot | None = None  # the state machine has to take this before it applies
        self.apply: list[Entry] = []
        self.reads: list[ReadState] = []
        self.outcomes: list[Outcome] = []
        self.more: bool = False  # call `ready` again in this turn or the next: there is more to apply
