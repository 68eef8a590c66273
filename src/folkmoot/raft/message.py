"""The messages between members, and their encoding.

One class for all kinds, as in etcd/raft: `FIELDS` says which fields a kind has, and what they mean there.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE, varint
from folkmoot.raft.codec import FORMAT, INTEGER_MAX, Reader, put_bytes
from folkmoot.raft.entry import Entry, put_entry, read_entry

__all__ = [
    "APPEND",
    "APPEND_RESPONSE",
    "BEHIND",
    "CHUNK",
    "CHUNK_REQUEST",
    "FETCH",
    "FETCH_RESPONSE",
    "FIELDS",
    "GRANTED",
    "GRANTED_EARLY",
    "HEARTBEAT",
    "HEARTBEAT_RESPONSE",
    "KINDS",
    "Message",
    "OFFER",
    "PRE_VOTE",
    "PRE_VOTE_RESPONSE",
    "READ",
    "READ_RESPONSE",
    "REFUSED",
    "STALE",
    "TIMEOUT_NOW",
    "VERDICTS",
    "VOTE",
    "VOTE_RESPONSE",
    "decode_message",
    "encode_message",
]

PRE_VOTE: Final = 1
PRE_VOTE_RESPONSE: Final = 2
VOTE: Final = 3
VOTE_RESPONSE: Final = 4
APPEND: Final = 5
APPEND_RESPONSE: Final = 6
HEARTBEAT: Final = 7
HEARTBEAT_RESPONSE: Final = 8
OFFER: Final = 9
CHUNK_REQUEST: Final = 10
CHUNK: Final = 11
FETCH: Final = 12
FETCH_RESPONSE: Final = 13
TIMEOUT_NOW: Final = 14
READ: Final = 15
READ_RESPONSE: Final = 16

KINDS: Final[dict[int, str]] = {
    PRE_VOTE: "pre-vote?",
    PRE_VOTE_RESPONSE: "pre-vote",
    VOTE: "vote?",
    VOTE_RESPONSE: "vote",
    APPEND: "append",
    APPEND_RESPONSE: "appended",
    HEARTBEAT: "heartbeat",
    HEARTBEAT_RESPONSE: "heard",
    OFFER: "offer",
    CHUNK_REQUEST: "chunk?",
    CHUNK: "chunk",
    FETCH: "fetch?",
    FETCH_RESPONSE: "fetched",
    TIMEOUT_NOW: "timeout-now",
    READ: "read?",
    READ_RESPONSE: "read",
}

GRANTED: Final = 1  # a vote is given; an append or a fetch fits
BEHIND: Final = 2  # the vote would be given, but for the candidate's log, which lacks entries of the voter's
REFUSED: Final = 3  # the voter hears a leader, or has voted for another; an append or a fetch does not fit
STALE: Final = 4  # the sender's term has passed: the answer carries the newer one
GRANTED_EARLY: Final = 5  # a vote, given on a proof that the leader has ended: its lease may not be over
VERDICTS: Final[dict[int, str]] = {
    GRANTED: "granted",
    BEHIND: "behind",
    REFUSED: "refused",
    STALE: "stale",
    GRANTED_EARLY: "granted early",
}

_VERDICT: Final = 1
_POSITION: Final = 2
_COMMIT: Final = 4
_ROUND: Final = 8
_ENTRIES: Final = 16
_SIZE: Final = 32
_DATA: Final = 64
_PROMISE: Final = 128

FIELDS: Final[dict[int, int]] = {
    PRE_VOTE: _POSITION,  # position: the last entry of the candidate
    PRE_VOTE_RESPONSE: _VERDICT | _POSITION,  # position: the last entry of the voter
    VOTE: _VERDICT | _POSITION,  # verdict: GRANTED when the leader has handed leadership over, else 0
    VOTE_RESPONSE: _VERDICT | _POSITION | _PROMISE,  # promise: GRANTED_EARLY: what is left of the one that it breaks
    # position: the entry before `entries`. round: echoed by the follower, proves contact since its beginning; 0: no
    # answer is wanted
    APPEND: _POSITION | _COMMIT | _ROUND | _ENTRIES,
    # position: GRANTED: index up to which the follower matches; else a hint where the logs may match.
    # commit: the index that was refused. promise: for so long after `round` was sent, the voter votes for nobody else
    APPEND_RESPONSE: _VERDICT | _POSITION | _COMMIT | _ROUND | _PROMISE,
    HEARTBEAT: _COMMIT | _ROUND,
    HEARTBEAT_RESPONSE: _ROUND | _PROMISE,
    OFFER: _POSITION | _ROUND | _SIZE,  # position and size (encoded) of a snapshot
    CHUNK_REQUEST: _POSITION | _SIZE,  # position of the snapshot; size: the bytes that are already there
    CHUNK: _POSITION | _SIZE | _DATA,  # size: the offset of `data`
    FETCH: _POSITION,  # position: the newest entry of the candidate that is known to be committed
    # GRANTED: position before `entries`; commit: the last index. BEHIND: position and size of a snapshot to read first
    FETCH_RESPONSE: _VERDICT | _POSITION | _COMMIT | _SIZE | _ENTRIES,
    TIMEOUT_NOW: 0,
    READ: _SIZE,  # size: the context of the reader
    READ_RESPONSE: _VERDICT | _COMMIT | _SIZE,  # commit: the read index
}


class Message:
    """One message. A field that the kind does not have is 0 or empty."""

    def __init__(self, kind: int, sender: int, to: int, term: int) -> None:
        assert sender != to, "a node sends nothing to itself"
        self.kind = kind
        self.sender = sender
        self.to = to
        self.term = term
        self.verdict: int = 0
        self.index: int = 0
        self.log_term: int = 0
        self.commit: int = 0
        self.round: int = 0
        self.size: int = 0
        self.promise: int = 0  # nanoseconds of the sender's clock
        self.entries: list[Entry] = []
        self.data: bytes = b""

    def __repr__(self) -> str:
        fields = FIELDS[self.kind]
        parts = [f"{self.sender}->{self.to} {KINDS[self.kind]} term {self.term}"]
        if fields & _VERDICT and self.verdict:
            parts.append("transfer" if self.kind == VOTE else VERDICTS[self.verdict])
        if fields & _POSITION:
            parts.append(f"at {self.index}/{self.log_term}")
        if fields & _COMMIT:
            parts.append(f"commit {self.commit}")
        if fields & _ROUND:
            parts.append(f"round {self.round}")
        if fields & _SIZE:
            parts.append(f"size {self.size}")
        if fields & _PROMISE and self.verdict == GRANTED_EARLY:
            parts.append(f"promise {self.promise}")
        if fields & _DATA:
            parts.append(f"({len(self.data)} bytes)")
        if self.entries:
            parts.append("[" + ", ".join([repr(entry) for entry in self.entries]) + "]")
        return " ".join(parts)


def encode_message(message: Message) -> bytes:
    """Return a message as bytes."""
    fields = FIELDS[message.kind]
    parts = [BYTE[FORMAT], BYTE[message.kind], varint(message.sender), varint(message.to), varint(message.term)]
    if fields & _VERDICT:
        parts.append(BYTE[message.verdict])
    if fields & _POSITION:
        parts.append(varint(message.index))
        parts.append(varint(message.log_term))
    if fields & _COMMIT:
        parts.append(varint(message.commit))
    if fields & _ROUND:
        parts.append(varint(message.round))
    if fields & _SIZE:
        parts.append(varint(message.size))
    if fields & _PROMISE:
        parts.append(varint(message.promise))
    if fields & _DATA:
        parts.append(put_bytes(message.data))
    if fields & _ENTRIES:
        parts.append(varint(len(message.entries)))
        parts.extend([put_entry(entry) for entry in message.entries])
    return b"".join(parts)


def decode_message(data: bytes) -> Message:
    """Return the message in `data`; raises Malformed.

    Whatever it returns is a message that a node could have sent: `Raft.step` relies on what is checked here.
    """
    reader = Reader(data, "message")
    reader.version()
    kind = reader.byte()
    if kind not in KINDS:
        raise reader.fault(f"{kind} is no kind of message")
    sender = reader.integer()
    to = reader.integer()
    term = reader.integer()
    if sender == 0 or to == 0 or sender == to:
        raise reader.fault(f"no message goes from {sender} to {to}")
    if term == 0 and kind != READ and kind != READ_RESPONSE:
        raise reader.fault("the term is missing")
    message = Message(kind, sender, to, term)
    _read_fields(reader, message, FIELDS[kind])
    reader.end()
    return message


def _read_fields(reader: Reader, message: Message, fields: int) -> None:
    """Read the fields of the kind of `message`."""
    if fields & _VERDICT:
        message.verdict = reader.byte()
        if message.verdict not in VERDICTS and not (message.kind == VOTE and message.verdict == 0):
            raise reader.fault(f"{message.verdict} is no verdict")
    if fields & _POSITION:
        message.index = reader.integer()
        message.log_term = reader.integer()
        if message.log_term > message.term:
            raise reader.fault(f"an entry of term {message.log_term} is newer than the term of its sender")
    if fields & _COMMIT:
        message.commit = reader.integer()
    if fields & _ROUND:
        message.round = reader.integer()
    if fields & _SIZE:
        message.size = reader.integer()
    if fields & _PROMISE:
        message.promise = reader.integer()
    if fields & _DATA:
        message.data = reader.octets()
    if fields & _ENTRIES:
        _read_entries(reader, message)


def _read_entries(reader: Reader, message: Message) -> None:
    """Read entries that follow the position of `message`; their terms never fall, nor exceed the sender's."""
    number = reader.count(3)
    if message.index > INTEGER_MAX - number:
        raise reader.fault("indexes are used up")
    last_term = message.log_term
    for at in range(number):
        entry = read_entry(reader, message.index + 1 + at)
        if not last_term <= entry.term <= message.term:
            raise reader.fault(f"{entry.index}/{entry.term} stands behind an entry of term {last_term}")
        last_term = entry.term
        message.entries.append(entry)
