"""All effects of a node, in one file: what a driver has to do after a turn.

The order is part of the interface. A driver
1. hands `write` to the commit log (before any write of a later turn), and the operations of `apply` to the tables,
   after all earlier writes; when the tables have them, it calls `Node.applied`,
2. aborts the connections in `drops` whose transports hold unsent bytes; then, if its monotonic clock is before
   `until_ns`, sends the output of every connection in `outputs`: none of it depends on `write`; otherwise it calls
   `Node.withhold`, sends none of it, and begins another turn,
3. closes every connection in `closes` after its output, and reports it with `Node.lost`,
4. pauses and resumes the reading of sockets, starts the password checks, writes the log,
5. dials the addresses in `dials`, sends the output of peers, closes those in `peer_closes`: a frame to a peer may leave
   before this node's own disk has the write, because it contains only what the peer is to write too,
6. answers readers of streams: `calls` have ended; `grown`: there is more to read at other nodes,
7. calls `Node.wake` again in the next turn when `more` is set,
8. measures the memory of the process when `measure` is set, and reports it (`Node.measured`).
Effects that depend on a write come from a turn after `Node.written(token)`.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.event import Event
from folkmoot.peer.peer import PeerConnection
from folkmoot.report.call import Call
from folkmoot.session.connection import Authenticate, Connection
from folkmoot.store.batch import Batch

__all__ = ["Authenticate", "Effects"]


class Effects:
    """The effects of one turn; see the module's docstring for their order."""

    def __init__(self) -> None:
        self.write: Batch | None = None
        self.apply: list[tuple[int, bytes, bytes]] = []  # operations, of batches up to `apply_token`
        self.apply_token = 0
        self.outputs: list[Connection] = []
        self.until_ns: int = NEVER
        self.drops: list[Connection] = []
        self.closes: list[Connection] = []
        self.pauses: list[Connection] = []
        self.resumes: list[Connection] = []
        self.checks: list[Authenticate] = []
        self.events: list[Event] = []
        self.dials: list[str] = []
        self.peer_outputs: list[PeerConnection] = []
        self.peer_closes: list[PeerConnection] = []
        self.calls: list[Call] = []
        self.grown: bool = False
        self.measure: bool = False
        self.more: bool = False
