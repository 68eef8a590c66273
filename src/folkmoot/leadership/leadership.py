"""Beginning and ending to lead partitions, while their clients stay connected.

A new leader asks all members which clients are connected and reads the rows (`recovery`), gives the connected clients
their sessions back, settles the other sessions, and only then takes requests. A former leader drops its memory of the
partition, and passes packets on from then on. Clients notice a pause.
"""

from __future__ import annotations

from typing import Final

from folkmoot.channel.parts import ChannelParts
from folkmoot.delivery.parts import DeliveryParts
from folkmoot.feed.parts import FeedParts
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import INFO
from folkmoot.kernel.pack import varint
from folkmoot.leadership.drain import Drain
from folkmoot.leadership.hosting import Hosting
from folkmoot.leadership.recovery import Arrival, Recovery
from folkmoot.leadership.restore import Restore
from folkmoot.mqtt import reason
from folkmoot.mqtt.connect import decode_connect
from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.kind import DISCONNECT
from folkmoot.mqtt.packet import Ack, Disconnect
from folkmoot.partition.parts import PartitionParts
from folkmoot.protocol.closing import ENDED_BEFORE
from folkmoot.protocol.parts import ProtocolParts
from folkmoot.proxy.parts import ProxyParts
from folkmoot.proxy.relay import HostedClient, decode_attached
from folkmoot.report.order import Orders
from folkmoot.session.connection import OPEN, REGISTERING
from folkmoot.session.relay import ASKED, GRANTED, Relay, is_ack
from folkmoot.session.session import Session
from folkmoot.turn.message import ENTER
from folkmoot.turn.parts import TurnParts
from folkmoot.turn.state import TIMER_ABSENT

__all__ = ["ABSENT_US", "Leadership"]

ABSENT_US: Final = 5 * SECOND
"""For so long nobody leads a partition before clients with sessions there are disconnected."""


class _Change:
    """What a view changes.

    gone: members of the view before that are up no more, or another process; their clients are disconnected. met: new,
    restarted, or back from another side of a split, where they took this node's clients for disconnected. fresh:
    everything that was said between them and this node is void and is said again; that includes members to which
    messages were lost. moved: partitions of which another leadership begins.
    """

    def __init__(self, gone: list[str], met: list[str], fresh: list[str], moved: list[int]) -> None:
        self.gone = gone
        self.met = met
        self.fresh = fresh
        self.moved = moved


class Leadership:
    """The partitions that this node leads, and what changes with them."""

    def __init__(
        self,
        turn: TurnParts,
        channel: ChannelParts,
        proxy: ProxyParts,
        partition: PartitionParts,
        delivery: DeliveryParts,
        feed: FeedParts,
        protocol: ProtocolParts,
        orders: Orders,
    ) -> None:
        self.state = turn.state
        self.fabric = turn.fabric
        self.streams = turn.streams
        self.forward_sender = channel.forward_sender
        self.outbox = channel.outbox
        self.relays = proxy.relays
        self.led = partition.led
        self.bodies = partition.bodies
        self.retained = partition.retained
        self.producers = partition.producers
        self.interest = delivery.interest
        self.routes = delivery.routes
        self.purges = delivery.purges
        self.forward_receiver = delivery.forward_receiver
        self.inquiries = feed.inquiries
        self.feeds = feed.feeds
        self.lifecycle = protocol.lifecycle
        self.closing = protocol.closing
        self.attaching = protocol.attaching
        self.admission = protocol.admission
        self.orders = orders
        self.restore = Restore(turn, channel, partition, delivery, feed, protocol)
        self.hosting = Hosting(turn, partition, protocol, self.restore)
        self.met: dict[str, int] = {}  # by node: the view in which it and this node started over
        self.drain = Drain(channel.deferral, feed.inquiries, protocol.inbound)
        self.recovery = Recovery(self.relays, self.restore, self.fabric)
        self._led = 0  # partitions since the last report
        self._was_out = False  # others may have gone on without this node, since its last view
        self._leaderless: dict[int, None] = {}  # partitions that nobody leads, since an earlier view or this one

    # -- views --------------------------------------------------------------------------------------------------------

    def install(
        self,
        epoch: int,
        members: dict[str, int],
        leaders: list[str],
        leader_epochs: list[int],
        before: dict[str, int],
        merging: list[int],
        since: dict[str, int],
    ) -> None:
        """Install a view: its other members with their incarnations, those of the view before, and the leaders.

        leader_epochs: the numbers of their leaderships; another number is another leadership, also of the same node.
        merging: partitions of which changes of the other side of a split are not merged yet. since: by node, the epoch
        in which it and this one have started over; this epoch, for those that are missing. A node may install only
        later views, or see the other one in an earlier view than that one sees it.
        """
        fabric = self.fabric
        # First: this sends what is left of the view before. It must not reach an out-of-sync node, where it would stand
        # for the requests that were lost before it.
        self.forward_sender.begin(epoch)
        change = self._compare(members, before, leaders, leader_epochs)
        lost = {one: None for one in change.moved if fabric.leaders[one] == fabric.node_id}
        # Links keep what was sent over a cut and deliver it after the heal. Receivers drop everything that comes before
        # the ENTER of a view in which they began anew with this node.
        for node_id in members:
            fabric.send(node_id, ENTER, varint(epoch))
        fabric.epoch = epoch
        fabric.began = fabric.began or epoch
        fabric.others = sorted(members)
        fabric.leaders = leaders
        fabric.leader_epochs = leader_epochs
        fabric.leaderless = "" in leaders
        self.outbox.renumber()
        self._move(change.moved, merging)
        led = [partition for partition in range(self.state.partitions) if self.state.leads[partition]]
        assert all(leaders[partition] == fabric.node_id for partition in led), "what others lead was given up"
        self._end_members(change.gone)
        if len(change.fresh) == len(members):
            self._start_over(bool(members))
        self._was_out = False
        for node_id in change.fresh:
            self.forward_sender.renew(node_id)
            self.interest.tell(node_id, led, True)
        for node_id in change.met:
            self.met[node_id] = since.get(node_id, epoch)
        self.routes.forget_all()
        self.inquiries.installed()
        self.interest.landings.installed()
        self.drain.installed()
        self.hosting.installed(change.fresh, lost)
        self._again()

    def _compare(
        self, members: dict[str, int], before: dict[str, int], leaders: list[str], leader_epochs: list[int]
    ) -> _Change:
        """Compare a view with the one before: members and leaderships."""
        fabric = self.fabric
        # Out of sync: these members miss messages of this node; this node may miss none of theirs.
        out_of_sync = fabric.resync()
        gone = [node_id for node_id in before if members.get(node_id) != before[node_id]]
        met = [node_id for node_id in members if before.get(node_id) != members[node_id]]
        fresh = [node_id for node_id in members if node_id in met or node_id in out_of_sync]
        moved: list[int] = []
        for partition in range(self.state.partitions):
            # A leader that stays opens its partition anew when it was restarted, has lost messages of this node, or
            # merges another side's copy first: what it has in memory does not match this node's any more. The number
            # of the leadership tells it, not the two views that this node compares: others have skipped other ones.
            leader = leaders[partition]
            same = leader == fabric.leaders[partition] and leader_epochs[partition] == fabric.leader_epochs[partition]
            if not same or leader in gone or leader in fresh:
                moved.append(partition)
        return _Change(gone, met, fresh, moved)

    def _move(self, moved: list[int], merging: list[int]) -> None:
        """End the leaderships that are over; ask nothing of partitions without a leader."""
        for partition in range(self.state.partitions):
            if partition in moved:
                self._moved(partition, partition in merging)
            # No copy can lead. Publishers get an error instead of waiting: their turns would hold up all later turns
            # of this node. Outbox entries are rows and wait.
            if self.fabric.leaders[partition]:
                self._leaderless.pop(partition, None)
            else:
                self._turn_away(partition)
                self.forward_sender.fail_leaderless(partition)
                self.interest.from_other_side.pop(partition, None)

    def _end_members(self, gone: list[str]) -> None:
        """Members are up no more: their requests, subscribers and clients are gone, in this order."""
        for node_id in gone:
            self._forget(node_id)
        self.routes.forget_all()
        # Only now: the wills of one node's clients must find no subscriber at another node that is gone.
        for node_id in gone:
            self.hosting.gone(node_id)
            self.orders.gone(node_id)

    def _start_over(self, has_members: bool) -> None:
        """Know no subscriber at other nodes: this node has just started, or returns alone from a split.

        A hosted client's packet that was published now would miss them (A5).
        """
        self.hosting.informed = False
        if has_members:
            self.interest.begin_anew(self._was_out)

    def _moved(self, partition: int, is_merging: bool) -> None:
        """Another leadership of a partition has begun: nothing is asked of it until it opens."""
        fabric = self.fabric
        fabric.open[partition] = False
        # Requests sent in an earlier view are refused, not kept: the sender's next one could overtake them by another
        # way, and they would then be taken for repetitions.
        fabric.since[partition] = fabric.epoch
        if self.state.leads[partition]:
            self.leave(partition)
        self.forward_sender.moved(partition)
        self.interest.moved(partition)
        # Who has subscribed at the other side is not known before the branch is merged, whoever leads.
        if is_merging:
            self.interest.from_other_side[partition] = None
        self.forward_receiver.moved(partition)
        self.relays.moved(partition)

    def _forget(self, node_id: str) -> None:
        """A member is up no more, or another process: it answers nothing, and nothing is sent to its subscribers."""
        self.forward_sender.gone(node_id)
        self.interest.gone(node_id)
        self.forward_sender.barrier.forget(node_id)

    def _turn_away(self, partition: int) -> None:
        """Refuse clients that wait for a leader of the partition that has their session: there is none.

        Those that are connected notice nothing of a node that starts again at once.
        """
        if partition not in self._leaderless:
            self._leaderless[partition] = None
            self.state.timers.set(self.state.now + ABSENT_US, TIMER_ABSENT, partition)
        for relay in self.relays.of_partition(partition):
            if relay.state == ASKED:
                self.closing.absent(relay.connection, partition)

    def absent(self, partition: int) -> None:
        """Nobody has led a partition for a while: disconnect clients whose session is there.

        They would get no message, and no answer to what the leader has to do.
        """
        if partition in self._leaderless:
            for relay in self.relays.of_partition(partition):
                if relay.state == GRANTED and relay.persistent:
                    self.closing.absent(relay.connection, partition)

    def stand_down(self, why: str) -> None:
        """Serve no client: the cluster continues without this node, or this side of a split may not serve.

        Clients are disconnected, so that they can connect to a node that serves. Memory of partitions, requests under
        way and what was known of other nodes are dropped. Rows stay as they are: the view in which this node serves
        again decides what counts of them.
        """
        fabric = self.fabric
        self._was_out = True
        self._leaderless.clear()
        # First: nothing that the steps below end may be passed on to a leader, here or at another node.
        for partition in range(self.state.partitions):
            fabric.open[partition] = False
            fabric.holds[partition] = False
            fabric.leaders[partition] = ""
            fabric.leader_epochs[partition] = 0
        self.recovery.clear()
        self.hosting.stand_down()
        self.forward_sender.drop_all()
        self.lifecycle.pending_closes.clear()
        self.closing.dismiss_all(why)
        if self.streams.dirty:
            self.streams.flush(self.state.writer)  # wills of dismissed clients; `leave` closes the streams
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
        self.drain.stand_down()
        self.inquiries.installed()
        self.routes.forget_all()

    def leave_all(self) -> None:
        """Lead nothing for a moment: all partitions are restored from the store, with the clients connected then.

        When two sides of a split meet, each has taken the other's clients for disconnected and dropped what it had in
        memory of them. Rows are what both can agree on.
        """
        for partition in range(self.state.partitions):
            if self.state.leads[partition]:
                self.leave(partition)
                self.fabric.open[partition] = False
        self.routes.forget_all()

    def _again(self) -> None:
        """Ask again, in the new view, which clients are connected: answers of the old view's members are not complete.

        What was read of the rows stays where it can, see `recovery`.
        """
        wanted = self.recovery.installed()
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
        """This node has all changes of these partitions and may lead them: ask which clients are connected.

        `lead` follows when the rows are read and all members have answered (`recovery`). A restored session whose
        client is connected somewhere must not be taken for one whose client is gone: its will would be published, or it
        would end.
        """
        # A partition that begins anew in two views in a row is reported twice, and may be open by the second report.
        # To open it twice would restore its sessions beside those that clients use already.
        begun = [partition for partition in partitions if not self.state.leads[partition]]
        asked = [partition for partition in begun if self.recovery.begin(partition)]
        if begun:
            self.hosting.expecting = True
        if asked:
            self.hosting.want(asked)

    def is_opening(self) -> bool:
        """Whether this node leads a partition that it has not opened: it does not know what is in its outbox."""
        if self.fabric.planted.moves_unseen:
            return False
        leaders, leads = self.fabric.leaders, self.state.leads
        for partition in range(self.state.partitions):
            if leaders[partition] == self.fabric.node_id and not leads[partition]:
                return True
        return False

    def told(self, node_id: str, body: bytes) -> None:
        """Take a node's list of its connected clients. Raises ValueError if it is malformed."""
        epoch, partitions, clients = decode_attached(body)
        if epoch == self.fabric.epoch:
            self.recovery.told(node_id, partitions, clients)

    def lead(self, partitions: list[int], homes: dict[str, tuple[bool, list[str]]]) -> None:
        """Begin to lead partitions; those that cannot be read are in `recovery.spoiled`.

        homes: clients that may be connected at these nodes only (True), or anywhere but there (False).
        """
        # The order matters. Rows take their places first; then connected clients take their sessions; only then are the
        # other sessions settled, because it is known now whose will is due and who gets it; then the others learn that
        # the partitions are open, and may believe what is said of clients; then packets that came early are handled;
        # and requests of other nodes come last, because they may be for those sessions.
        arrivals = self._take(partitions)
        led = [arrival.loader.partition for arrival in arrivals]
        self.routes.forget_all()  # packets that are handled next must find these partitions here
        for partition in led:
            for relay in self.relays.of_partition(partition):
                if relay.state == ASKED:
                    # It will be admitted below, as if it came now. An earlier leader may have stored its will already.
                    self._await(relay.connection.client_id, relay.token)
                else:
                    self._claim(relay, homes)
        for arrival in arrivals:
            self._attach(arrival, homes)
        self.routes.forget_all()
        self.restore.settle()
        if led:
            for node_id in self.fabric.others:
                self.interest.tell(node_id, led, False)
        self.hosting.let_in()
        self.hosting.catch_up(len(self.recovery) > 0)
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
        """Put what was read of partitions into memory; return those for which that worked."""
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
        for node_id, client in arrival.attached:
            if client.void and client.persistent:  # it has said DISCONNECT
                self.restore.disclaim(client.client_id, client.token)
            elif client.void:
                self._await(client.client_id, client.token)
            elif not self._may_attach(node_id, client, homes):
                self.hosting.turn_away(node_id, client)
            else:
                self.hosting.attach(node_id, client, client.client_id in homes)
                self._end_flows(client.client_id, homes)

    def _await(self, client_id: str, token: int) -> None:
        """Take back the will of a connection that an earlier leader may have let in, and that asks again."""
        self.restore.disclaim(client_id, token)
        self.restore.await_client(client_id, token)

    def _may_attach(self, node_id: str, client: HostedClient, homes: dict[str, tuple[bool, list[str]]]) -> bool:
        """Whether the connection of a client is the one that its session has."""
        if client.persistent:
            return _is_home(homes, client.client_id, node_id)
        return self.restore.is_chosen(client.client_id, client.token)

    def _tell(self) -> None:
        if self._led:
            counters = self.state.counters
            fields: dict[str, object] = {"partitions": self._led, "sessions": len(self.state.sessions)}
            fields.update({"queued": counters.queue_messages, "retained": counters.retained_messages})
            self.state.event(INFO, "leads", fields)
            self._led = 0

    def _claim(self, relay: Relay, homes: dict[str, tuple[bool, list[str]]]) -> None:
        """Go on with a client that is connected to this node: it leads its session now."""
        connection = relay.connection
        # The end of a connection waits behind what its client has published (ADR 12). If this node leads the session
        # before that has been passed on, the end counts here.
        ended, goodbye = self.lifecycle.pending_closes.end_of(relay)
        if goodbye:
            self.restore.disclaim(connection.client_id, relay.token)
        self.relays.forget(relay)
        session = self.state.sessions.get(connection.client_id)
        # The row of the session names the connection that has it. If that is another one, the client has connected
        # again elsewhere, perhaps with a clean start: packets of this connection are not for the new session.
        if session is not None and session.persistent and not session.had_by(relay.token):
            if connection.state == OPEN:
                self.closing.taken_over(connection, connection.client_id in homes)
            return
        if ended:
            if session is not None and session.persistent and _is_home(homes, session.client_id, self.fabric.node_id):
                self._take_leave(session, relay)
            return
        if not relay.persistent:
            if not self.restore.is_chosen(connection.client_id, relay.token):
                self.closing.taken_over(connection, merged=True)
                return
            stray = self.restore.take_stray(connection.client_id, relay.token)
            if stray is not None and connection.session is not None:
                self.state.accounts.set_will(connection.session, stray.will)
            return
        if connection.state != OPEN:
            return
        packet = decode_connect(connection.connect_body)
        home = _is_home(homes, connection.client_id, self.fabric.node_id)
        if session is None or session.connection is not None or not session.persistent or not home:
            self.closing.close(connection)
            return
        if session.ends_us and connection.client_id not in homes:
            self.closing.disconnect(connection, reason.SERVER_BUSY, ENDED_BEFORE)
            return
        self.attaching.resume(connection, session, packet, list(relay.flights.values()))
        self.outbox.follow(session, connection)
        self._end_flows(connection.client_id, homes)
        # What the former leader may have lost is handled again; the client is not asked. `repeated` keeps QoS 0
        # messages that the former leader was given from going out twice.
        work = self.state.work
        stop = work.begin_all()
        for number, first, rest, came_us in relay.log:
            if connection.state == OPEN and first >= 0x10:
                connection.again = number
                connection.waited_us = self.state.now - came_us
                connection.repeated = number <= relay.sent_seq
                self.hosting.handle(connection, first, rest)
        work.end_all(stop)
        connection.again = connection.waited_us = 0
        connection.repeated = False

    def _take_leave(self, session: Session, relay: Relay) -> None:
        """Handle what a client has said before it left, and no leader has confirmed: acknowledgements, DISCONNECT."""
        queue = self.attaching.queue
        queue.attach(session)
        queue.reclaim(session, list(relay.flights.values()))
        for _number, first, rest, _came_us in relay.log:
            if not is_ack(first) and first >> 4 != DISCONNECT:
                continue
            try:
                packet = decode(first, rest, relay.connection.version)
                if isinstance(packet, Disconnect):
                    self.lifecycle.change_expiry(session, packet)
                elif isinstance(packet, Ack):
                    queue.acknowledged(session, packet)
            except MalformedPacket:  # the client is gone, and what came before counts
                break
        queue.detach(session)

    def _end_flows(self, client_id: str, homes: dict[str, tuple[bool, list[str]]]) -> None:
        """Send PUBREL after a merge: the client may wait for that of flows that the other side has begun."""
        session = self.state.sessions.get(client_id)
        if client_id in homes and session is not None and session.persistent:
            self.attaching.queue.resend(session)

    # -- ending -------------------------------------------------------------------------------------------------------

    def leave(self, partition: int) -> None:
        """Stop leading a partition; to be called between turns."""
        state = self.state
        state.leads[partition] = False
        self.lifecycle.leave_partition(partition)
        for session in state.sessions.of_partition(partition):
            self._leave_session(session)
        for connection in self.admission.release(partition):
            self.hosting.release(connection)
        self.interest.leave(partition)
        memory = self.led[partition]
        self.bodies.forget(memory)
        state.lazy.forget(partition)
        self.retained.forget(memory)
        self.producers.forget(partition)
        self.purges.forget(partition)
        self.lifecycle.wills.leave(partition)
        self.outbox.forget(memory)
        self.orders.leave(partition)
        self.restore.leftovers.leave(partition)
        self.streams.close_in(partition)
        self.led.drop(partition)
        self.feeds.grown()  # replays at the end of its streams must ask another node from now on
        for feed_session in self.lifecycle.ended:
            self.feeds.forget(feed_session)
        self.lifecycle.ended.clear()

    def _leave_session(self, session: Session) -> None:
        connection = session.connection
        if connection is None or connection.remote is not None:  # the node with the connection tells the next leader
            self.hosting.leave(session)
            self.lifecycle.leave(session)
            return
        if connection.state == REGISTERING:
            # It has no CONNACK yet: it asks the new leader, as if it came now.
            session.connection = None
            connection.session = None
            self.state.counters.clients_connected -= 1
            self.lifecycle.leave(session)
            connection.connect = decode_connect(connection.connect_body)
            self.relays.ask(connection, session.partition, connection.connect_body, not connection.connect.client_id)
            return
        # This node is alive, so the next leader need not do without acknowledgements that may not be on its disk.
        taken = self.attaching.queue.hand_over(session, connection)
        self.relays.adopt(connection, session, taken, self.outbox.busy(session.partition))
        if session.persistent:
            self.lifecycle.leave(session)
            session.connection = None
            self.attaching.attach_proxy(connection)
            task = connection.task
            if task is not None and connection.relay is not None:  # it is not answered: the next leader does that
                self.state.work.wake(connection)
                connection.drop_task()
                first, rest = task.packet()
                self.relays.forward(connection.relay, first, rest)
        elif session.will is not None:
            self.state.accounts.set_will(session, None)  # its row is there
            self.state.counters.wills_pending -= 1


def _is_home(homes: dict[str, tuple[bool, list[str]]], client_id: str, node_id: str) -> bool:
    home = homes.get(client_id)
    return home is None or (node_id in home[1]) == home[0]
