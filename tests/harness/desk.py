"""Giving the orders of transactions to a node by hand, as whoever serves HTTP does."""

from __future__ import annotations

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Properties, Publish
from folkmoot.query.question import ABORT, COMMIT, FORGET, LIST, STAGE, Answer
from folkmoot.report.call import Call
from folkmoot.report.order import encode_chunk, encode_commit
from folkmoot.store.transaction import home_of
from tests.harness.box import Box

__all__ = ["Desk", "app_in", "packet", "packets"]


def packet(
    topic: str, payload: bytes, qos: int = 1, retain: bool = False, properties: Properties | None = None
) -> bytes:
    """A message as it is staged."""
    return encode(Publish(topic.encode(), payload, qos, retain, False, 1 if qos else 0, properties), V5)


def packets(topic: str, payloads: list[bytes], qos: int = 1) -> bytes:
    """Messages as they are staged."""
    return b"".join(packet(topic, payload, qos) for payload in payloads)


def app_in(partition: int, partitions: int) -> str:
    """The name of an app whose home is this partition."""
    return next(f"app{n}" for n in range(9999) if home_of(b"app%d" % n, partitions) == partition)


class Desk:
    """Orders of one app, given at `box`; each method returns the answer, None when it is to be asked again."""

    def __init__(self, box: Box, app: str, partitions: int) -> None:
        self.box = box
        self.app = app.encode()
        self.home = home_of(self.app, partitions)

    def give(self, what: int, numbers: list[int], key: bytes = b"") -> Call | Answer | None:
        """Give an order and do not wait."""
        return self.box.node.ask_home(self, self.home, what, self.app, [self.home, *numbers], key, self.box.now)

    def order(self, what: int, numbers: list[int], key: bytes = b"") -> Answer | None:
        """Give an order and let everything run."""
        found = self.give(what, numbers, key)
        self.box.run()
        return found.answer if isinstance(found, Call) else found

    def stage(
        self, number: int, part: str, chunk: int, topic: str, payloads: list[bytes], qos: int = 1
    ) -> Answer | None:
        return self.order(
            STAGE,
            [number, chunk, len(payloads)],
            encode_chunk(part.encode(), packets(topic, payloads, qos)),
        )

    def commit(self, number: int, *parts: tuple[str, int]) -> Answer | None:
        return self.order(COMMIT, [number], encode_commit([(part.encode(), chunks) for part, chunks in parts]))

    def abort(self, number: int, part: str) -> Answer | None:
        return self.order(ABORT, [number], part.encode())

    def forget(self) -> Answer | None:
        return self.order(FORGET, [])

    def list(self) -> Answer | None:
        return self.order(LIST, [])
