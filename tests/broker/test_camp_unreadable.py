"""A row that cannot be read costs the connection of its client, and nothing else."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.store.key import QUEUE, kind_of
from folkmoot.store.reader import Reader
from tests.harness.camp import Camp
from tests.harness.peer import EVER


class NoQueues(Reader):
    """Cannot read what waits for clients."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def get(self, key: bytes) -> bytes | None:
        return self.reader.get(key)

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        if kind_of(start) == QUEUE:
            raise CorruptStore("block checksum mismatch")
        return self.reader.scan(start, end, limit)

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        return self.reader.last(start, end)


def test_who_comes_to_a_queue_that_cannot_be_read_is_sent_away_and_the_node_goes_on() -> None:
    camp = Camp(3)
    for name in camp.sites:
        for site in camp.live():
            peer = site.client(f"r-{name}-{site.name}")
            peer.connect(session_expiry=EVER)
            peer.subscribe("t", qos=1)
            peer.lose()
    source = camp["n1"].client("source")
    source.connect()
    for number in range(5):
        source.publish("t", b"%d" % number, qos=1)
    for site in camp.live():
        state = site.node._broker.state
        state.reader = NoQueues(state.reader)
    sent_away = 0
    for name in camp.sites:
        for site in camp.live():
            peer = next(peer for peer in site.peers if peer.client_id == f"r-{name}-{site.name}")
            peer.connect(clean_start=False, session_expiry=EVER, code=None)
            camp.advance(SECOND)
            sent_away += peer.closed
    assert sent_away == 9
    assert any("corrupt_store" in site.kinds() for site in camp.live())
    source.publish("other", b"x", qos=1)
    assert not source.closed
