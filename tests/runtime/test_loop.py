from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest

from folkmoot.kernel.event import INFO, Event
from folkmoot.runtime.clock import Clock
from folkmoot.runtime.drain import LINGER_BYTES_MAX, LINGER_S
from folkmoot.runtime.gate import Gate
from folkmoot.runtime.loop import LARGE_BYTES, REARM_US, TURN_BYTES_MAX, WAKE_S_MAX, Turns
from folkmoot.runtime.tcp import TcpProtocol
from folkmoot.store.batch import Batch
from tests.runtime.fake import FakeLoop, FakeNode, FakeTransport


class Bench:
    """A driver between a fake node and a fake loop."""

    def __init__(self) -> None:
        self.node = FakeNode()
        self.loop = FakeLoop()
        node: Any = self.node
        loop: Any = self.loop
        self.turns = Turns(node, loop, Clock())
        self.batches: list[Batch] = []
        self.turns.submit = self.batches.append
        self.gate = Gate(100, 100, self.loop.time)

    def connected(self) -> tuple[TcpProtocol, FakeTransport]:
        arrival = self.gate.enter("127.0.0.1")
        assert arrival is not None
        protocol, transport = TcpProtocol(self.turns, self.gate, arrival), FakeTransport()
        made: Any = transport
        transport.protocol = protocol
        protocol.connection_made(made)
        return protocol, transport

    def turn(self) -> None:
        self.loop.iterate()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def timed(bench: Bench) -> Bench:
    """Return a driver whose clock is that of the loop."""

    def time_ns() -> int:
        return 10**18 + round(bench.loop.now * 1e9)

    bench.turns.clock = Clock(time_ns, time_ns)
    return bench


def test_all_chunks_of_an_iteration_make_one_turn_and_one_write_per_connection(bench: Bench) -> None:
    (first, one), (second, two) = bench.connected(), bench.connected()
    bench.turn()
    assert bench.node.turns == 1
    for chunk in (b"a", b"b", b"c"):
        first.data_received(chunk)
        second.data_received(chunk.upper())
    assert bench.node.turns == 1, "a turn ends in the next iteration"
    assert one.written == []
    bench.turn()
    assert bench.node.turns == 2
    assert (one.written, two.written) == ([b"abc"], [b"ABC"])
    bench.turn()
    assert bench.node.turns == 2, "without input there is no turn"


def test_a_clock_behind_the_time_of_the_node_is_refused() -> None:
    """The node would ignore the time that it is told until the clock has reached its own."""
    made, loop = FakeNode(), FakeLoop()
    node: Any = made
    given: Any = loop
    clock = Clock(lambda: 5_000_000, lambda: 0)
    made.now = clock.read()
    Turns(node, given, clock)
    made.now += 1
    with pytest.raises(AssertionError, match="another clock"):
        Turns(node, given, clock)


class AtTheBeginning(Turns):
    """A planted bug: everything in a turn has the time at which it began."""

    def begin(self) -> int:
        return self.now if self.begun else super().begin()


@pytest.mark.parametrize("planted", [False, True])
def test_what_is_read_after_a_stop_in_the_middle_of_a_turn_has_a_later_time(timed: Bench, planted: bool) -> None:
    (one, _), (two, _) = timed.connected(), timed.connected()
    timed.turn()
    if planted:
        timed.turns.__class__ = AtTheBeginning
    times: list[int] = []
    timed.turns.receive = lambda _connection, _data, now: times.append(now)
    one.data_received(b"a")
    timed.loop.now += 3.0  # the process is stopped, and others go on without it
    two.data_received(b"b")
    timed.turns.ask(times.append)  # as for other nodes
    assert [time_us - times[0] for time_us in times] == ([0, 0, 0] if planted else [0, 3_000_000, 3_000_000])
    assert timed.node.turns == 1, "it is one turn all the same"


def test_a_write_is_handed_over_before_output_is_sent_and_told_when_it_is_durable(bench: Bench) -> None:
    protocol, transport = bench.connected()
    order: list[str] = []
    bench.turns.submit = lambda batch: order.append(f"write {batch.token} after {len(transport.written)} outputs")
    batch = Batch(7)
    batch.put(b"key", b"value")
    bench.node.effects.write = batch
    protocol.data_received(b"x")
    bench.turn()
    assert order == ["write 7 after 0 outputs"]
    assert transport.written == [b"x"]
    assert bench.node.counters.commit_waiting_batches == 1
    assert bench.node.counters.commit_waiting_bytes == 8
    bench.turns.written(7)
    assert bench.node.named("written") == [(7,)]
    assert bench.node.counters.commit_waiting_batches == 0
    assert bench.node.histograms.commit_us.count == 1


def test_readers_are_woken_after_the_turn_in_which_rows_became_durable(bench: Bench) -> None:
    woken: list[int] = []
    bench.turns.after_written = lambda: woken.append(bench.node.turns)
    bench.turns.begin()
    bench.turn()
    assert woken == []
    bench.turns.written(1)
    bench.turn()
    assert woken == [2]


def test_background_work_goes_on_in_the_next_iteration_and_not_in_this_one(bench: Bench) -> None:
    bench.node.effects.more = True
    bench.turns.begin()
    bench.turn()
    assert bench.node.named("wake") == []
    bench.turn()
    assert len(bench.node.named("wake")) == 1
    assert bench.node.turns == 1, "sockets are read between the wake and the end of its turn"
    bench.turn()
    assert bench.node.turns == 2


def test_a_deadline_sets_a_timer_and_an_earlier_one_replaces_it(bench: Bench) -> None:
    now = bench.turns.begin()
    bench.node.due = now + 30_000_000
    bench.turn()
    bench.turns.begin()
    bench.node.due = now + 10_000_000
    bench.turn()
    active = [timer for timer in bench.loop.timers if not timer.cancelled]
    assert len(active) == 1
    assert 9.0 < active[0].when <= 10.0
    bench.turns.begin()
    bench.node.due = now + 20_000_000
    bench.turn()
    assert [timer for timer in bench.loop.timers if not timer.cancelled] == active, "the timer was set just now"
    bench.loop.advance(10.0)
    assert bench.node.named("wake") == [], "what was due has been put off"
    bench.node.due = now
    bench.loop.timers[-1].callback()
    assert len(bench.node.named("wake")) == 1


def test_a_deadline_that_is_put_off_moves_the_timer_if_it_was_not_set_just_now(timed: Bench) -> None:
    now = timed.turns.begin()
    timed.node.due = now + 300_000
    timed.turn()
    timed.loop.advance(REARM_US / 1e6)
    timed.turns.begin()
    timed.node.due = now + 500_000
    timed.turn()
    (timer,) = [timer for timer in timed.loop.timers if not timer.cancelled]
    assert timer.when == pytest.approx(0.5)
    timed.turns.stop_timers()
    timed.turns.begin()
    timed.turn()
    assert all(timer.cancelled for timer in timed.loop.timers), "a node that ends sets no timer"


def test_a_timer_never_fires_before_its_deadline(timed: Bench) -> None:
    timed.node.due = timed.turns.begin() + 12_400
    timed.turn()
    (timer,) = timed.loop.timers
    assert timer.when == pytest.approx(0.013), "a loop that counts in milliseconds would call at 12"
    timed.loop.advance(0.013)
    assert len(timed.node.named("wake")) == 1


def test_a_far_deadline_is_looked_at_again_because_the_clock_may_be_set(bench: Bench) -> None:
    bench.node.due = bench.turns.begin() + 3_600_000_000
    bench.turn()
    assert bench.loop.timers[0].when == WAKE_S_MAX


def test_closing_comes_after_the_last_output_and_lost_is_told_once_it_is_true(bench: Bench) -> None:
    protocol, transport = bench.connected()
    bench.turn()
    protocol.data_received(b"bye")
    bench.node.effects.closes.append(bench.node.connections[0])
    bench.turn()
    assert (transport.written, transport.calls) == ([b"bye"], ["eof", "resume"])
    assert bench.node.named("lost") == []
    transport.protocol.connection_lost(None)
    assert bench.node.named("lost") == [(1, "closed by the peer")]
    bench.loop.advance(LINGER_S + 1)
    assert transport.calls == ["eof", "resume"], "what is gone is not aborted"


def test_a_connection_that_drains_is_neither_heard_nor_written_nor_paused(bench: Bench) -> None:
    _, transport = bench.connected()
    connection: Any = bench.node.connections[0]
    bench.node.effects.closes.append(connection)
    bench.turn()
    effects = bench.node.effects
    effects.outputs.append(connection)
    effects.pauses.append(connection)
    effects.resumes.append(connection)
    effects.closes.append(connection)
    connection.out.append(b"too late")
    transport.protocol.get_buffer(-1)[:4] = b"more"
    transport.protocol.buffer_updated(4)
    bench.turns.begin()
    bench.turn()
    assert (transport.written, transport.calls) == ([], ["eof", "resume"])
    assert bench.node.named("receive") == []
    assert bench.gate.sockets == 1, "it counts as long as its socket is open"


def test_a_peer_that_goes_on_sending_is_cut_off(bench: Bench) -> None:
    _, transport = bench.connected()
    bench.node.effects.closes.append(bench.node.connections[0])
    bench.turn()
    piece = len(transport.protocol.get_buffer(-1))
    for _ in range(LINGER_BYTES_MAX // piece):
        transport.protocol.buffer_updated(piece)
    assert transport.calls == ["eof", "resume"]
    transport.protocol.buffer_updated(1)
    assert transport.calls == ["eof", "resume", "abort"]


@pytest.mark.parametrize(("said", "bytes_out"), [(0, 100), (4, 100), (-1, 0)])
def test_a_client_that_has_nothing_to_read_is_closed_at_once(bench: Bench, said: int, bytes_out: int) -> None:
    """It has sent DISCONNECT, or was never sent anything: a close costs no more than its system call."""
    protocol, transport = bench.connected()
    bench.node.connections[0].said = said
    bench.node.connections[0].bytes_out = bytes_out
    bench.node.effects.closes.append(bench.node.connections[0])
    bench.turn()
    assert transport.calls == ["close"]
    assert transport.protocol is protocol


def test_a_client_whose_memory_is_needed_is_cut_off_at_once(bench: Bench) -> None:
    """It does not read, so waiting for it would keep all that it has not read."""
    _, transport = bench.connected()
    bench.node.connections[0].cut = True
    bench.node.effects.closes.append(bench.node.connections[0])
    bench.turn()
    assert transport.calls == ["abort"]


def test_memory_is_measured_when_the_node_asks(bench: Bench) -> None:
    bench.connected()
    measured: list[str] = []
    bench.turns.measure = lambda: measured.append("now")
    bench.turn()
    assert measured == []
    bench.node.effects.measure = True
    bench.turns.begin()
    bench.turn()
    bench.turn()
    assert measured == ["now"]


def test_a_transport_without_halves_closes_by_itself(bench: Bench) -> None:
    """So does TLS: it ends with close_notify, and reads until the peer's."""
    _, transport = bench.connected()
    transport.can_write_eof = lambda: False  # type: ignore[method-assign]
    bench.node.effects.closes.append(bench.node.connections[0])
    bench.turn()
    assert transport.calls == ["close"]


def test_what_is_not_sent_yet_is_told(bench: Bench) -> None:
    (_, first), (_, second) = bench.connected(), bench.connected()
    bench.node.effects.closes.append(bench.node.connections[0])
    bench.turn()
    assert bench.turns.unsent(), "one connection is not being closed"
    first.unsent_bytes = 10
    bench.node.effects.closes.append(bench.node.connections[1])
    bench.turns.begin()
    bench.turn()
    assert second.calls == ["eof", "resume"]
    assert bench.turns.unsent(), "the last bytes of one are not sent"
    first.unsent_bytes = 0
    assert not bench.turns.unsent()


def test_a_peer_that_does_not_take_the_last_bytes_is_cut_off(bench: Bench) -> None:
    _, slow = bench.connected()
    bench.turn()
    bench.node.effects.closes.append(bench.node.connections[0])
    bench.turns.begin()
    bench.turn()
    bench.loop.advance(LINGER_S - 1)
    _, later = bench.connected()
    bench.node.effects.closes.append(bench.node.connections[1])
    bench.turn()
    assert slow.calls == ["eof", "resume"]
    bench.loop.advance(1)
    assert (slow.calls, later.calls) == (["eof", "resume", "abort"], ["eof", "resume"])
    bench.loop.advance(LINGER_S)
    assert later.calls == ["eof", "resume", "abort"]


def test_reading_is_paused_and_resumed_but_not_on_a_lost_connection(bench: Bench) -> None:
    (_, here), (gone, away) = bench.connected(), bench.connected()
    bench.turn()
    gone.connection_lost(ConnectionResetError("reset by the peer"))
    assert bench.node.named("lost") == [(2, "reset by the peer")]
    effects = bench.node.effects
    effects.pauses += bench.node.connections
    effects.resumes += bench.node.connections
    bench.turn()
    assert (here.calls, away.calls) == (["pause", "resume"], [])


def test_a_turn_takes_only_so_much_from_those_who_push(bench: Bench) -> None:
    """Else it would be as large as what all of them can push while the loop empties their sockets."""
    bench.node.echo = False
    (pusher, here), (other, there), (late, away) = bench.connected(), bench.connected(), bench.connected()
    bench.turn()
    for _ in range(TURN_BYTES_MAX // LARGE_BYTES):
        pusher.data_received(bytes(LARGE_BYTES))
    assert here.calls == []
    pusher.data_received(bytes(LARGE_BYTES))
    other.data_received(b"small")
    late.data_received(bytes(LARGE_BYTES))
    assert (here.calls, there.calls, away.calls) == (["pause"], [], ["pause"])
    bench.node.connections[2].reading_paused = True  # the node itself wants to hear no more of this one
    bench.turn()
    assert (here.calls, there.calls, away.calls) == (["pause", "resume"], [], ["pause"])
    pusher.data_received(bytes(LARGE_BYTES))
    bench.turn()
    assert here.calls == ["pause", "resume"], "the next turn has its own measure"


def test_checks_and_events_are_passed_on(bench: Bench) -> None:
    checks: list[object] = []
    events: list[Event] = []
    bench.turns.check = checks.append
    bench.turns.log = lambda batch, now: events.extend(batch)
    _, transport = bench.connected()
    check = object()
    event = Event(INFO, "connected", {})
    bench.node.effects.checks.append(check)
    bench.node.effects.events.append(event)
    bench.turn()
    assert (checks, events) == ([check], [event])
    connection: Any = bench.node.connections[0]
    bench.turns.authenticated(connection, True)
    assert bench.node.named("authenticated") == [(1, True)]
    bench.turns.lost(connection, "gone")
    bench.turns.authenticated(connection, True)
    assert len(bench.node.named("authenticated")) == 1, "nobody is there to be let in"
    assert transport.calls == []


def test_the_disk_is_full_while_anybody_says_so(bench: Bench) -> None:
    bench.turns.storage("space", "")
    bench.turns.storage("space", "little left")
    bench.turns.stuck("no space left")
    bench.turns.storage("space", "less left")
    bench.turns.storage("space", "")
    assert bench.node.named("storage") == [(True, "little left")]
    bench.turns.unstuck()
    assert bench.node.named("storage") == [(True, "little left"), (False, "")]


def test_a_fault_of_the_node_is_reported_and_ends_no_loop(bench: Bench) -> None:
    errors: list[Exception] = []
    bench.turns.fail = errors.append

    def drain(now: int, steady_ns: int = 0) -> Any:
        raise AssertionError("half a turn")

    bench.node.drain = drain  # type: ignore[method-assign]
    bench.turns.begin()
    bench.turn()
    assert [str(error) for error in errors] == ["half a turn"]


def test_after_a_fault_half_a_turn_is_neither_written_nor_sent(bench: Bench) -> None:
    protocol, transport = bench.connected()
    bench.turn()
    protocol.data_received(b"half")
    bench.node.effects.write = Batch(1)
    bench.turns.halt()
    bench.turn()
    assert (bench.batches, transport.written) == ([], [])
    protocol.data_received(b"more")
    bench.turns.written(1)
    bench.turn()
    assert bench.node.named("receive") == [(1, b"half")]
    assert bench.node.named("written") == []
    assert bench.node.turns == 1


def test_flow_control_is_told_to_the_node(bench: Bench) -> None:
    protocol, _ = bench.connected()
    protocol.pause_writing()
    protocol.resume_writing()
    assert bench.node.named("writable") == [(1, False), (1, True)]


def test_of_the_connections_that_are_being_closed_the_oldest_makes_room(bench: Bench) -> None:
    (_, one), (_, two) = bench.connected(), bench.connected()
    connections: list[Any] = list(bench.node.connections)
    first, second = connections
    bench.turn()
    assert not bench.turns.cut_closing(0)
    bench.turns.linger(first)
    bench.loop.now += 1.0
    bench.turns.linger(second)
    assert not bench.turns.cut_closing(1.5)
    assert bench.turns.cut_closing(1.0)
    assert (one.calls, two.calls) == (["abort"], [])
    assert not bench.turns.cut_closing(1.0), "the second one is not old enough"


class Counted(OrderedDict[int, Any]):
    """Counts the entries that are looked at by a walk."""

    looked_at = 0

    def __iter__(self) -> Iterator[int]:
        for key in super().__iter__():
            self.looked_at += 1
            yield key

    def items(self) -> Any:
        self.looked_at += len(self)
        return super().items()


def test_cutting_those_that_stay_does_not_walk_over_all_of_them_each_time(bench: Bench) -> None:
    """A crowd that breaks the protocol and does not close its side: each of it stays for five seconds."""
    count = 500
    bench.gate = Gate(count, count, bench.loop.time)
    counted = bench.turns._lingering = Counted()
    transports = []
    for _ in range(count):
        protocol, transport = bench.connected()
        bench.turns.linger(protocol._connection)
        transports.append(transport)
        bench.loop.advance(0.001)
    for _ in range(count):
        bench.loop.advance(LINGER_S / count)
    bench.loop.advance(LINGER_S)
    assert all(transport.calls == ["abort"] for transport in transports)
    assert counted.looked_at <= 4 * count
