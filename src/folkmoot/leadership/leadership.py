"""Beginning and ending to lead partitions, while their clients stay connected (DESIGN sections 6 to 9).

A new leader asks all members who is connected and reads the rows (`recovery`), gives the connected clients their
sessions back, settles the others, and only then takes requests. An old leader forgets what it had in memory and passes
packets on from then on. Clients notice a pause.
"""

from __future__ import annotations

import msgspec

from folkmoot.channel.forward_sender import ForwardSender
from folkmoot.channel.outbox import Outbox
from folkmoot.delivery.forward_receiver import ForwardReceiver
from folkmoot.delivery.purge import Purges
from folkmoot.feed.feed import Feeds
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import INFO
from folkmoot.kernel.pack import varint
from folkmoot.leadership.hosting import Hosting
from folkmoot.leadership.recovery import Arrival, Recovery
from folkmoot.leadership.restore import Restore
from folkmoot.mqtt.connect import decode_connect
from folkmoot.partition.body import Bodies
from folkmoot.partition.mark import Marks
from folkmoot.partition.producer import Producers
from folkmoot.partition.retained import Retained
from folkmoot.protocol.admit import Admission
from folkmoot.protocol.attach import Attaching
from folkmoot.protocol.closing import Closing
from folkmoot.protocol.lifecycle import Lifecycle
from folkmoot.proxy.relay import HOST_ENTRY, Relays
from folkmoot.query.inquiry import Inquiries
from folkmoot.report.order import Orders
from folkmoot.routing.interest import Interest
from folkmoot.routing.route import Routes
from folkmoot.session.connection import OPEN, REGISTERING
from folkmoot.session.relay import ASKED, Relay
from folkmoot.session.session import Session
from folkmoot.streams.table import Streams
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import ENTER
from folkmoot.turn.state import State

__all__ = ["Leadership"]


class Leadership:
    """Which partitions this node leads, and what changes with them."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        interest: Interest,
        forward_sender: ForwardSender,
        relays: Relays,
        marks: Marks,
        outbox: Outbox,
        bodies: Bodies,
        routes: Routes,
        retained: Retained,
        producers: Producers,
        purges: Purges,
        lifecycle: Lifecycle,
        feeds: Feeds,
        closing: Closing,
        attaching: Attaching,
        admission: Admission,
        forward_receiver: ForwardReceiver,
        restore: Restore,
        hosting: Hosting,
        inquiries: Inquiries,
        orders: Orders,
        streams: Streams,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.interest = interest
        self.forward_sender = forward_sender
        self.relays = relays
        self.marks = marks
        self.outbox = outbox
        self.bodies = bodies
        self.routes = routes
        self.retained = retained
        self.producers = producers
        self.purges = purges
        self.lifecycle = lifecycle
        self.feeds = feeds
        self.closing = closing
        self.attaching = attaching
        self.admission = admission
        self.forward_receiver = forward_receiver
        self.restore = restore
        self.hosting = hosting
        self.inquiries = inquiries
        self.orders = orders
        self.streams = streams
        self.met: dict[str, int] = {}  # in which view all began anew with a node
        self.recovery = Recovery(relays, restore, fabric.planted)
        self._led = 0  # partitions since it was told last

    # -- views --------------------------------------------------------------------------------------------------------

    def install(
        self, epoch: int, members: dict[str, int], leaders: list[str], before: dict[str, int], merging: list[int]
    ) -> None:
        """A new view: its other members with their incarnations, those of the view before, and who leads what.

        merging: partitions that open anew, whoever leads them: what they had at the other side of a split comes first.
        """
        fabric = self.fabric
        self.forward_sender.begin(epoch)
        out_of_sync = (
            fabric.resync()
        )  # they have not heard all that this node has said; it may have heard all that they have
        for node_id in members:
            fabric.send(node_id, ENTER, varint(epoch))
        gone = [node_id for node_id in before if members.get(node_id) != before[node_id]]
        met = [node_id for node_id in members if before.get(node_id) != members[node_id]]
        fresh = [node_id for node_id in members if node_id in met or node_id in out_of_sync]
        old = fabric.leaders
        fabric.epoch = epoch
        fabric.others = sorted(members)
        fabric.leaders = leaders
        self.outbox.renumber()
        fabric.leaderless = "" in leaders
        for partition in range(self.state.partitions):
            leader = leaders[partition]
            if leader != old[partition] or leader in gone or leader in fresh or partition in merging:
                fabric.open[partition] = False
                fabric.since[partition] = epoch
                if self.state.leads[partition]:
                    self.leave(partition)
                self.forward_sender.moved(partition)
                self.interest.moved(partition)
                if partition in merging and leader in met:
                    self.forward_receiver.restart_numbers(partition)
                    self.interest.from_other_side[partition] = None
                self.forward_receiver.moved(partition)
                self.relays.moved(partition)
            if not leader:
                self.forward_sender.give_up(partition)
                self.interest.from_other_side.pop(partition, None)
        self.routes.forget_all()
        for node_id in gone:
            self.forward_sender.gone(node_id)
            self.interest.gone(node_id)
            self.forward_sender.barrier.forget(node_id)
            self.hosting.gone(node_id)
            self.orders.gone(node_id)
        if len(fresh) == len(members):
            self.hosting.informed = False  # nobody has told yet
        led = [partition for partition in range(self.state.partitions) if self.state.leads[partition]]
        for node_id in fresh:
            self.forward_sender.renew(node_id)
            self.interest.tell(node_id, led, True)
        self.met.update(dict.fromkeys(met, epoch))
        self.routes.forget_all()
        self.inquiries.installed()
        self.hosting.installed(fresh)
        self._again()

    def stand_down(self, why: str) -> None:
        """Serve nobody: the cluster goes on without this node, or this side of a split may not go on."""
        fabric = self.fabric
        for partition in range(self.state.partitions):
            fabric.open[partition] = False
            fabric.holds[partition] = False
            fabric.leaders[partition] = ""
        self.recovery.clear()
        self.hosting.stand_down()
        self.forward_sender.drop_all()
        self.lifecycle.pending_closes.clear()
        self.closing.dismiss_all(why)
        if self.streams.dirty:
            self.streams.flush(self.state.writer)  # by wills
        for partition in range(self.state.partitions):
            if self.state.leads[partition]:
                self.leave(partition)
            for relay in self.relays.of_partition(partition):
                self.relays.forget(relay)
        for node_id in fabric.others:
            self.interest.gone(node_id)
            self.forward_sender.barrier.forget(node_id)
            self.orders.gone(node_id)
        fabric.others = []
        self.inquiries.installed()
        self.routes.forget_all()

    def leave_all(self) -> None:
        """Lead nothing for a moment: everything is restored, with whoever is connected then."""
        for partition in range(self.state.partitions):
            if self.state.leads[partition]:
                self.leave(partition)
                self.fabric.open[partition] = False
        self.routes.forget_all()

    def _again(self) -> None:
        """Ask anew, in the new view, who is connected."""
        wanted = [one for one in self.recovery.arrivals if self.fabric.leaders[one] == self.fabric.node_id]
        self.recovery.clear()
        self._tell()
        if wanted:
            self.prepare(wanted)
        elif self.hosting.expecting:
            self.hosting.catch_up(False)

    def opened(self, partition: int) -> None:
        """Another node has begun to lead a partition."""
        self.fabric.open[partition] = True
        self.forward_receiver.opened(partition)
        self.relays.opened(partition)
        self.inquiries.opened()

    # -- beginning ----------------------------------------------------------------------------------------------------

    def prepare(self, partitions: list[int]) -> None:
        """This node has all changes of these partitions and may lead them: ask who is connected."""
        begun = [partition for partition in partitions if not self.state.leads[partition]]  # it may have done so
        for partition in begun:
            self.recovery.begin(partition, self.fabric.others)
        if begun:
            self.hosting.expecting = True
            self.hosting.want(begun)

    def told(self, node_id: str, body: bytes) -> None:
        """A node tells who is connected to it. Raises ValueError for nonsense."""
        told = msgspec.msgpack.decode(body, type=tuple[int, list[int], list[HOST_ENTRY]])
        if told[0] == self.fabric.epoch:
            self.recovery.told(node_id, told[1], told[2])

    def lead(self, partitions: list[int], homes: dict[str, tuple[bool, list[str]]]) -> None:
        """Lead partitions from now on; those that cannot be read are in `recovery.spoiled`.

        homes: clients that may be connected at these nodes only (True), or anywhere but there (False).
        """
        arrivals = self._take(partitions)
        led = [arrival.loader.partition for arrival in arrivals]
        self.routes.forget_all()  # what clients have sent already is handled next, with these partitions here
        for partition in led:
            for relay in self.relays.of_partition(partition):
                if relay.state == ASKED:
                    self.restore.disclaim(relay.connection.client_id, relay.token)
                else:
                    self._take_back(relay, homes)
        for arrival in arrivals:
            self._attach(arrival, homes)
        self.routes.forget_all()
        self.restore.settle()
        self.hosting.let_in()
        self.hosting.catch_up(len(self.recovery) > 0)
        if led:
            for node_id in self.fabric.others:
                self.interest.tell(node_id, led, False)
        self.inquiries.opened()
        for partition in led:
            self.forward_receiver.opened(partition)
            for relay in self.relays.of_partition(partition):
                self.relays.forget(relay)
                connection = relay.connection
                if connection.state == REGISTERING:
                    self.admission.admit(connection, relay.assigned)
        self._led += len(led)
        if not len(self.recovery):
            self._tell()

    def _take(self, partitions: list[int]) -> list[Arrival]:
        """Give what was read of partitions its place; return those of which that could be done."""
        arrivals: list[Arrival] = []
        for partition in partitions:
            arrival = self.recovery.arrivals[partition]
            try:
                self.restore.take(arrival.loader)
            except CorruptStore as fault:
                self.recovery.spoil(arrival, fault)
                continue
            del self.recovery.arrivals[partition]
            self.interest.lead(partition)
            self.fabric.open[partition] = True
            arrivals.append(arrival)
        return arrivals

    def _attach(self, arrival: Arrival, homes: dict[str, tuple[bool, list[str]]]) -> None:
        for node_id, entry in arrival.attached:
            if entry[12]:
                self.restore.disclaim(entry[2], entry[11])
            elif not (_is_home(homes, entry[2], node_id) if entry[9] else self.restore.is_chosen(entry[2], entry[11])):
                self.hosting.turn_away(node_id, entry)
            else:
                self.hosting.attach(node_id, entry, entry[2] in homes)
                self._end_flows(entry[2], homes)

    def _tell(self) -> None:
        if self._led:
            counters = self.state.counters
            fields: dict[str, object] = {"partitions": self._led, "sessions": len(self.state.sessions)}
            fields.update({"queued": counters.queue_messages, "retained": counters.retained_messages})
            self.state.event(INFO, "leads", fields)
            self._led = 0

    def _take_back(self, relay: Relay, homes: dict[str, tuple[bool, list[str]]]) -> None:
        """A client of this very node: its session is here now."""
        connection = relay.connection
        ended, goodbye = self.lifecycle.pending_closes.end_of(relay)
        if goodbye:
            self.restore.disclaim(connection.client_id, relay.token)
        self.relays.forget(relay)
        session = self.state.sessions.get(connection.client_id)
        if session is not None and session.durable and not session.had_by(relay.token):
            if connection.state == OPEN:
                self.closing.taken_over(connection, connection.client_id in homes)
            return
        if ended:
            return
        if not relay.durable:
            if not self.restore.is_chosen(connection.client_id, relay.token):
                self.closing.taken_over(connection, merged=True)
                return
            stray = self.restore.take_stray(connection.client_id, relay.token)
            if stray is not None and connection.session is not None:
                connection.session.will = stray.will
            return
        if connection.state != OPEN:
            return
        packet = decode_connect(connection.connect_body)
        home = _is_home(homes, connection.client_id, self.fabric.node_id)
        if session is None or session.connection is not None or not session.durable or not home:
            self.closing.close(connection)
            return
        self.attaching.resume(connection, session, packet, list(relay.flights.values()))
        self.outbox.follow(session, connection)
        self._end_flows(connection.client_id, homes)
        for number, first, rest in relay.log:
            if connection.state == OPEN and first >= 0x10:
                connection.again = number
                connection.repeated = number <= relay.sent_seq
                self.hosting.handle(connection, first, rest)
        connection.again = 0
        connection.repeated = False

    def _end_flows(self, client_id: str, homes: dict[str, tuple[bool, list[str]]]) -> None:
        """After a merge a client may wait for PUBREL of flows that the other side has begun."""
        session = self.state.sessions.get(client_id)
        if client_id in homes and session is not None and session.durable:
            self.attaching.queue.resend(session)

    # -- ending -------------------------------------------------------------------------------------------------------

    def leave(self, partition: int) -> None:
        """Lead a partition no more; to be called between turns."""
        state = self.state
        state.leads[partition] = False
        for session in [session for session in state.sessions.values() if session.partition == partition]:
            self._leave_session(session)
        for connection in self.admission.give_up(partition):
            self.hosting.give_up(connection)
        self.interest.leave(partition)
        self.bodies.forget(partition)
        self.retained.forget(partition)
        self.producers.forget(partition)
        self.purges.forget(partition)
        self.lifecycle.wills.leave(partition)
        self.marks.forget(partition)
        self.outbox.forget(partition)
        self.orders.leave(partition)
        self.streams.close_in(partition)
        self.feeds.grown()  # replays at the end of its streams: from now on another knows how they grow
        for feed_session in self.lifecycle.ended:
            self.feeds.forget(feed_session)
        self.lifecycle.ended.clear()

    def _leave_session(self, session: Session) -> None:
        connection = session.connection
        if connection is None or connection.remote is not None:
            self.hosting.leave(session)
            self.lifecycle.leave(session)
            return
        if connection.state == REGISTERING:
            # Nothing has been promised to it: it asks the new leader, as if it came now.
            session.connection = None
            connection.session = None
            self.state.counters.clients_connected -= 1
            self.lifecycle.leave(session)
            connection.connect = decode_connect(connection.connect_body)
            self.relays.ask(connection, session.partition, connection.connect_body, not connection.connect.client_id)
            return
        taken = self.attaching.queue.uncommitted(session)
        self.relays.adopt(connection, session, taken, self.outbox.busy(session.partition))
        if session.durable:
            self.lifecycle.leave(session)
            session.connection = None
            self.attaching.be_guest(connection)
        elif session.will is not None:
            session.will = None  # its row is there
            self.state.counters.wills_pending -= 1


def _is_home(homes: dict[str, tuple[bool, list[str]]], client_id: str, node_id: str) -> bool:
    home = homes.get(client_id)
    return home is None or (node_id in home[1]) == home[0]
