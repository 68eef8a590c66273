"""What leaves a node only under its lease, and what becomes of it without one.

A member may acknowledge, deliver, answer a read, or call itself ready only while it has a lease (`membership.lease`):
until then no other member leads what it leads. The membership sets `State.speaks_until_ns`, on the monotonic clock of
the driver. A node without a cluster speaks for ever (NEVER).

The rule: *the lease is compared with a time that was read after the last decision of the turn* (`Node.seal`), not
with the time at which bytes came in. Everything that leaves depends then on nothing but what this node knew while no
other one could decide otherwise. That its bytes arrive later, from a buffer of the transport, the kernel or the
network, is a delay like any other: the request was sent before that moment, and its answer is read after it. The
process may also be stopped between the comparison and the write. So the driver compares again just before it writes,
and a span is left all the same: no comparison is one step with a write. What is unsent in a transport when the
node stops serving its clients for good is aborted all the same (`Effects.drops`), because the client has a better
address by then.

What clients observe
- All output of connections that are let in, or about to be: PUBACK, PUBREC and PUBCOMP (of messages that nobody
  wants, too: that nobody wants them is known to the leaders alone), SUBACK (a subscription that other nodes do not
  know would miss messages), CONNACK (another node may have let in the same client id since, and a transient session
  is on no disk), deliveries of every QoS, retained messages and records of streams (reads: the newest value may be
  elsewhere).
- PINGRESP too, although it says nothing of any session: a client takes it for the answer that everything before it
  has been handled, and a client that gets no other answer should look for another node. It is withheld for `PAUSE_US`
  at the most, less than any client waits for it.
- DISCONNECT of a client that is at fault leaves in its order, behind what was withheld. DISCONNECT and a refused
  CONNACK with 0x9C or 0x89, "try another node", say nothing that a lease would have to cover: they leave without one.
  So do the parts of TLS, WebSocket (upgrade, Pong, Close) and TCP that the driver answers by itself.
- Answers of the HTTP interface that read data (`admin.leased`). Health, metrics and the status of the cluster
  describe this process, and leave at any time; `/health/ready` says 503.

What other nodes get, which pass it on to clients under their own lease
- Messages of the broker (kinds from BROKER_FIRST on) wait, all of them and in their order. Those that need the lease
  are answers of a leader: OUTPUT, OWN, EXPEL, QUERY_ANSWER, FORWARD_ACK. Another node may not know yet that this one
  leads no more; it would pass an old value on under its own, valid lease. Requests (FORWARD, RELAY, HOST, QUERY,
  WANTED) and facts about this node itself (ANNOUNCE, CONFIRM, LANDED, ATTACHED) are true without a lease. They wait
  because receivers rely on the order: a number that overtakes a withheld one hides it. To the others, this node hangs
  for that time.
- A forwarded message of QoS 0 is such a request. That a client has published it is true whoever leads; the receiver
  delivers it under its own lease.
- Messages of membership do not wait: without them there is no lease. Messages of replication do not wait: they are
  fenced by the epoch and the in-sync replicas, the leader of a partition counts on them whatever its lease, and READY
  says that this node has stopped leading under an older view. HEALS and LOGINS are facts about this node.
- Rows are written: nobody sees a row before an answer about it.

What a node does not even decide
- Who gets a message, if the decision is stored and would not be taken again when the client repeats itself: QoS 2, what
  a numbered producer sends, a committed transaction, a will. Others may have acknowledged subscriptions that this node
  does not know (`Broker.doubt_routes`). Such packets of its clients are not handled before the next lease, and new
  clients wait. The time that counts was read after the bytes were (`runtime.loop`): they were sent under the lease, so
  nothing was acknowledged before that this node does not know.

Without a lease, first a pause: output stays in the connections, those that have any are not read and their keep alive
does not run, messages for them wait in their queues as if they were slow. If the lease is renewed, everything leaves,
in order: clients have seen a pause. That is right even if other configurations were installed meanwhile, as long as
this node was up in all of them: others lead nothing of what it leads before its lease is certainly over, or it has
handed that over, and a member whose lease is certainly over is away in the next one. After `PAUSE_US` all clients are
disconnected, and new ones refused, until there is a lease again. If the node finds itself away
(`Leadership.stand_down`), this happens at once. What was withheld is *dropped* before, so that no acknowledgement
leaves together with the DISCONNECT.

What the membership guarantees: before it extends a lease that has ended, this node has handled every entry of the
configuration up to the commit index that came with the answer, and has stood down if it was away in one of them.
"""

from __future__ import annotations

from typing import Final

from folkmoot.broker.broker import Broker
from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.event import INFO, WARNING
from folkmoot.kernel.lease import PAUSE_US
from folkmoot.node.effect import Effects
from folkmoot.session.connection import CLOSED, CLOSING, OPEN, Connection
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import State

__all__ = ["NO_LEASE", "Withheld"]

NO_LEASE: Final = "it has no lease: the leader of the cluster does not answer it, or goes on without it"

_PAUSE_NS: Final = PAUSE_US * 1000
_LOOKS: Final = 1024  # connections per turn


class Withheld:
    """Owns the connections whose output waits for a lease.

    active: there is something to do beside comparing the time; dismissed: the clients were disconnected.
    """

    def __init__(self, state: State, fabric: Fabric, broker: Broker) -> None:
        self.state = state
        self.fabric = fabric
        self.broker = broker
        self.active = False
        self.dismissed = False
        self.due_us: int = NEVER
        self.outputs: list[Connection] = []
        self._closes: list[Connection] = []
        self._since_ns = 0  # when it was noticed that there is no lease; 0: there is one
        self._overdue = False
        self._is_told = False  # that there is none
        self._full: dict[int, Connection] = {}  # of these, the ones that get no more, by number
        self._released: list[Connection] = []
        self._next = 0  # the connection to look at

    # -- at the beginning of the end of a turn ------------------------------------------------------------------------

    def step(self) -> None:
        """Read the connections again whose output has left, or disconnect all clients when the pause is over."""
        for connection in self._released:
            if connection.state >= CLOSING:
                continue
            connection.last_seen_us = self.state.now
            self.broker.turn.throttle.resume_reading(connection)
            if self._full.pop(connection.id, None) is not None and connection.writable:
                self.broker.writable(connection, True)
        self._released.clear()
        if self._overdue:
            self._overdue = False
            self.dismissed = True
            self.state.silent = NO_LEASE
            self.broker.dismiss(NO_LEASE)
        if not self._since_ns and not self.outputs and not self._closes:
            self.active = False
            self._full.clear()

    # -- when effects are collected -----------------------------------------------------------------------------------

    def release(self, effects: Effects) -> None:
        """There is a lease: what was withheld leaves before what is new."""
        state = self.state
        if self._since_ns:
            self._since_ns = 0
            self._overdue = False
            self.due_us = NEVER
            if self._is_told:
                state.event(INFO, "lease_renewed", {"clients": len(self.outputs)})
        self.dismissed = False
        state.silent = ""
        for connection in self.outputs:
            if connection.id in self._full:
                connection.writable = True
        outputs = [connection for connection in self.outputs if not _is_gone(connection)]
        self._released.extend(outputs)
        effects.outputs = outputs + effects.outputs
        effects.closes = [one for one in self._closes if one.state != CLOSED] + effects.closes
        effects.more = True  # `step`
        self.outputs = []
        self._closes = []

    def hold(self, effects: Effects, steady_ns: int) -> None:
        """There is no lease: keep what needs one."""
        self.active = True
        if not self._since_ns:
            self._since_ns = max(steady_ns, 1)
            self._is_told = self.state.speaks_until_ns > 0 and not self.state.stopping
            if self._is_told:  # not before the first lease, and not when it was given back
                self.state.event(WARNING, "lease_over", {})
        free = self.dismissed or self.fabric.idle != ""
        if not free and (steady_ns - self._since_ns >= _PAUSE_NS or self.state.stopping):
            self._overdue = True
            effects.more = True
        self.due_us = NEVER
        if not free and not self._overdue:
            self.due_us = self.state.now + (self._since_ns + _PAUSE_NS - steady_ns) // 1000 + 1
        for connection in effects.outputs:
            if connection.state < CLOSING:
                self.broker.turn.throttle.pause_reading(connection)
        self.outputs.extend(effects.outputs)
        effects.outputs = []
        if free:
            # Those that this node served are closed, and their output was dropped: what is left sends them elsewhere.
            effects.outputs = [connection for connection in self.outputs if connection.state == CLOSING]
            self.outputs = [connection for connection in self.outputs if connection.state < CLOSING]
            effects.closes = self._closes + effects.closes
            effects.until_ns = NEVER
            self._closes = []
        else:
            self._closes.extend([one for one in effects.closes if one.dirty])
            effects.closes = [one for one in effects.closes if not one.dirty]
            self._look()

    def keep(self, effects: Effects) -> None:
        """The lease has ended before the driver wrote: keep what has not left."""
        self.active = True
        self.outputs.extend(effects.outputs)
        self._closes.extend([one for one in effects.closes if one.dirty])
        effects.closes = [one for one in effects.closes if not one.dirty]
        effects.outputs = []

    def _look(self) -> None:
        """Keep connections from growing: a page of them in each turn."""
        outputs = self.outputs
        count = len(outputs)
        for _ in range(min(count, _LOOKS)):
            self._next = self._next + 1 if self._next + 1 < count else 0
            connection = outputs[self._next]
            if connection.state >= CLOSING:
                continue
            self.broker.turn.throttle.pause_reading(connection)
            if connection.state == OPEN and connection.writable and connection.out_bytes >= connection.send_bytes_max:
                connection.writable = False
                self._full[connection.id] = connection


def _is_gone(connection: Connection) -> bool:
    """Whether a connection has no transport any more."""
    return connection.state == CLOSED or connection.ending != ""
