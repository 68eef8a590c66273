"""Transactions in a cluster: whoever dies, and whenever, what is committed is published once."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.query.question import BUSY, COMMIT, CONFLICT, FORGET, FOUND, UNKNOWN, Answer
from folkmoot.report.call import Call
from folkmoot.report.order import encode_commit
from folkmoot.store.batch import Batch
from folkmoot.store.key import PACKETS, end_of, kind_prefix
from folkmoot.store.message import Message
from folkmoot.store.origin import transaction_name
from folkmoot.store.transaction import home_of
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.streams.config import StreamConfig
from tests.harness.desk import Desk, app_in
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 4
STREAM = StreamConfig("s", b"t/#", 2)
CHUNKS = 3
PER_CHUNK = 4
NUMBERS = 2
MESSAGES = NUMBERS * CHUNKS * PER_CHUNK
KEY = encode_commit([(b"p", CHUNKS)])


def leader_of(cluster: SimulatedCluster, partition: int) -> Site:
    cluster_node = cluster.live()[0].node.cluster_node
    assert cluster_node is not None
    return cluster[cluster_node.fabric.leaders[partition]]


class Stand:
    """Three nodes; an app whose home is partition 0, led by `leader`; readers in all partitions at other nodes."""

    def __init__(self, **arguments: object) -> None:
        self.cluster = SimulatedCluster(3, partitions=PARTITIONS, streams=[STREAM], **arguments)  # type: ignore[arg-type]
        self.app = app_in(0, PARTITIONS)
        self.leader = leader_of(self.cluster, 0)
        self.others = [site for site in self.cluster.live() if site is not self.leader]
        self.readers: list[Peer] = []
        for number in range(8):
            reader = self.others[number % 2].client(f"r{number}")
            reader.connect(clean_start=False, session_expiry=EVER)
            reader.subscribe("t/#", qos=2)
            self.readers.append(reader)
        self.live = self.others[0].client("live")
        self.live.connect()
        self.live.subscribe("t/#", qos=2)
        self.readers.append(self.live)
        self.got: dict[str, list[bytes]] = {reader.client_id: [] for reader in self.readers}

    def desk(self, site: Site) -> Desk:
        return Desk(site, self.app, PARTITIONS)

    def stage(self) -> None:
        for number in range(NUMBERS):
            for chunk in range(CHUNKS):
                first = PER_CHUNK * (CHUNKS * number + chunk)
                payloads = [b"%d" % n for n in range(first, first + PER_CHUNK)]
                site = self.cluster.live()[chunk % len(self.cluster.live())]
                assert status(self.desk(site).stage(number, "p", chunk, "t/x", payloads, 2)) == FOUND

    def commit(self, site: Site, number: int) -> Answer | None:
        return self.desk(site).commit(number, ("p", CHUNKS))

    def collect(self) -> None:
        """Note what came, before a reader connects anew."""
        for reader in self.readers:
            self.got[reader.client_id] += [publish.payload for publish in reader.publishes()]

    def check(self, in_stream: int = MESSAGES) -> None:
        """Each reader has each message once, in order, and so has the stream."""
        self.collect()
        for reader in self.readers:
            if reader.connection is None:
                reader.connect(clean_start=False, session_expiry=EVER)
        self.collect()
        expected = [b"%d" % n for n in range(MESSAGES)]
        for reader in self.readers:
            assert self.got[reader.client_id] == expected, reader
        ends = 0
        for index in range(STREAM.partitions):
            for site in self.cluster.live():
                log = site.node.streams.streams[0].logs[index]
                if site.node.leads_stream(log):
                    ends += log.readable_end
        assert MESSAGES <= ends <= in_stream


def status(answer: Answer | None) -> int:
    assert answer is not None
    return answer.status


def test_every_node_takes_orders_and_answers_when_all_have_it() -> None:
    stand = Stand()
    stand.stage()
    site = stand.others[1]
    for one in stand.others:
        one.hold_writes()
    call = stand.desk(site).commit(0, ("p", CHUNKS))
    assert call is None  # not yet, and perhaps never
    for one in stand.others:
        one.release_writes()
    assert status(stand.commit(site, 0)) == FOUND
    assert status(stand.commit(stand.leader, 1)) == FOUND
    stand.check()


@pytest.mark.parametrize("rounds", range(0, 36, 2))
def test_the_leader_dies_at_any_moment_and_each_message_comes_once(rounds: int) -> None:
    stand = Stand()
    stand.stage()
    cluster = stand.cluster
    cluster.freeze()
    calls = []
    for number in range(NUMBERS):
        desk = stand.desk(stand.others[0])
        calls.append(desk.give(COMMIT, [number], KEY))
    for _ in range(rounds):
        cluster.step()
    cluster.thaw()
    stand.leader.kill()
    cluster.settle()
    for number in range(NUMBERS):
        assert status(stand.commit(stand.others[1], number)) == FOUND
    cluster.advance(SECOND)
    stand.check()


@pytest.mark.parametrize("rounds", range(4, 28, 6))
def test_two_leaders_die_one_after_the_other(rounds: int) -> None:
    stand = Stand(replicas=3)
    cluster = stand.cluster
    cluster.add("n4")
    cluster.add("n5")
    cluster.settle()
    stand.leader = leader_of(cluster, 0)
    stand.stage()
    for number in range(NUMBERS):
        assert status(stand.commit(cluster.live()[0], number)) == FOUND
        cluster.freeze()
        for _ in range(rounds):
            cluster.step()
        cluster.thaw()
        leader = leader_of(cluster, 0)
        stand.collect()
        for reader in stand.readers[:-1]:
            if reader in leader.peers:
                reader.lose()
                reader.box = next(site for site in cluster.live() if site is not leader)
                reader.box.peers.append(reader)
        if stand.live in leader.peers:
            stand.readers.remove(stand.live)
        leader.kill()
        cluster.settle()
    cluster.advance(SECOND)
    stand.check()


def test_a_stage_that_is_not_whole_at_the_new_leader_is_named() -> None:
    stand = Stand()
    stand.stage()
    stand.leader.kill()
    stand.cluster.settle()
    refused = stand.desk(stand.others[0]).commit(0, ("p", CHUNKS + 1))
    assert refused is not None
    assert refused.status == CONFLICT
    assert f"p/{CHUNKS}" in refused.text


def test_a_leader_that_others_may_have_put_out_refuses_nothing_for_good() -> None:
    """What was staged while it did not hear is at the others: it must not say that it is not there."""
    stand = Stand()
    cluster = stand.cluster
    cluster.cut(stand.leader.name, *[site.name for site in stand.others])
    desk = stand.desk(stand.leader)
    calls = [desk.give(COMMIT, [0], KEY), desk.give(FORGET, [])]
    for call in calls:
        assert isinstance(call, Call)
        assert not call.over
    cluster.advance(10 * SECOND)
    for call in calls:
        assert isinstance(call, Call)
        assert call.over
        assert call.answer is None
    assert status(desk.forget()) == BUSY
    assert status(stand.desk(stand.others[0]).forget()) == UNKNOWN


def test_a_leader_that_is_put_apart_takes_its_removals_back() -> None:
    """It has removed chunks that nobody else knows to be gone: the other side publishes them, and nobody twice."""
    stand = Stand()
    stand.stage()
    cluster = stand.cluster
    leader = stand.leader
    cluster.freeze()
    for number in range(NUMBERS):
        stand.desk(leader).give(COMMIT, [number], KEY)
    for _ in range(3):
        cluster.step()
    cluster.cut(leader.name, *[site.name for site in stand.others])
    cluster.thaw()
    cluster.advance(10 * SECOND)
    assert status(stand.desk(leader).commit(0, ("p", CHUNKS))) == BUSY
    for number in range(NUMBERS):
        assert status(stand.commit(stand.others[0], number)) == FOUND
    cluster.advance(SECOND)
    cluster.heal()
    cluster.settle()
    cluster.advance(SECOND)
    stand.check()
    assert status(stand.commit(leader, NUMBERS - 1)) == FOUND


@pytest.mark.parametrize("rounds", range(2, 30, 3))
def test_a_split_while_it_is_published_brings_nothing_twice(rounds: int) -> None:
    stand = Stand()
    stand.stage()
    cluster = stand.cluster
    leader = stand.leader
    cluster.freeze()
    for number in range(NUMBERS):
        stand.desk(leader).give(COMMIT, [number], KEY)
    for _ in range(rounds):
        cluster.step()
    cluster.cut(leader.name, *[site.name for site in stand.others])
    cluster.thaw()
    cluster.advance(10 * SECOND)
    for number in range(NUMBERS):
        assert status(stand.commit(stand.others[0], number)) == FOUND
    cluster.advance(SECOND)
    cluster.heal()
    cluster.settle()
    cluster.advance(SECOND)
    stand.check(in_stream=2 * MESSAGES)  # records from the moment of the cut are appended anew, docs/limits.md


def packets_rows(site: Site) -> list[tuple[bytes, bytes]]:
    prefix = kind_prefix(0, PACKETS)
    return site.store.scan(prefix, end_of(prefix), 100)


def test_a_chunk_that_cannot_be_read_is_published_from_another_copy() -> None:
    stand = Stand()
    stand.stage()
    stand.cluster["n1"].run()
    key, value = packets_rows(stand.leader)[1]
    damaged = Batch(0)
    damaged.put(key, value[:VERSION_BYTES] + b"\xff" + value[VERSION_BYTES + 1 :])
    stand.leader.alter(damaged)
    for number in range(NUMBERS):
        stand.commit(stand.others[0], number)
    stand.cluster.advance(5 * SECOND)
    assert "unreadable" in stand.leader.kinds()
    stand.cluster.settle()
    for number in range(NUMBERS):
        assert status(stand.commit(stand.others[0], number)) == FOUND
    stand.cluster.advance(SECOND)
    stand.check()


def test_homes_differ_from_those_of_clients_and_topics() -> None:
    cluster = SimulatedCluster(1, partitions=256)
    homes = {home_of(b"app%d" % n, 256) for n in range(64)}
    clients = {cluster["n1"].node._state.partition_of(b"app%d" % n) for n in range(64)}
    assert homes != clients


def test_what_both_sides_of_a_split_publish_comes_once() -> None:
    stand = Stand()
    stand.stage()
    stand.leader.node._state.stopping = True  # it publishes nothing
    for number in range(NUMBERS):
        assert status(stand.commit(stand.leader, number)) == FOUND
    stand.collect()
    assert not any(stand.got.values())
    for other in stand.others:
        stand.cluster.cut(stand.leader.name, other.name)
    stand.leader.node._state.stopping = False
    stand.cluster.advance(10 * SECOND)
    counts = [site.node.counters.transaction_messages for site in stand.cluster.live()]
    assert sum(counts) == 2 * MESSAGES
    stand.cluster.heal()
    stand.cluster.settle()
    stand.cluster.advance(5 * SECOND)
    stand.collect()
    for reader in stand.readers:
        assert stand.got[reader.client_id] == [b"%d" % number for number in range(MESSAGES)]


def test_a_message_that_two_leaders_have_put_into_the_outbox_comes_once() -> None:
    """The second did not know of the entry of the first one, with which another side has gone on."""
    stand = Stand()
    entries = stand.leader.node._broker.delivery.publications.entries
    for number in (1, 2, 2, 3, 3, 2):
        message = Message(b"t/x", b"%d" % number, 2, False, b"", "a", stand.cluster.now, 0)
        entries.entrust(0, message, transaction_name(b"a"), number)
        stand.cluster.settle()
    stand.collect()
    for reader in stand.readers:
        assert stand.got[reader.client_id] == [b"1", b"2", b"3"]
