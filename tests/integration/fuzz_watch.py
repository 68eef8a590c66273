"""Well-behaved clients, and what they see while others attack: every message once, in order, and soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from folkmoot.mqtt.packet import PUBACK, Ack, Publish
from tests.integration.serving import RawClient, Serving

__all__ = ["Watch", "quantile"]

PERIOD_S = 0.02
MEMORY_S = 0.2


def quantile(values: list[float], share: float) -> float:
    """The value that a share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Watch:
    """One publisher and one subscriber with a stored session, at two nodes if there are two; and the nodes' memory.

    round_trips_s: from sending a message to its PUBACK and to its delivery, whichever is later.
    """

    def __init__(self, nodes: list[Serving]) -> None:
        self.nodes = nodes
        self.round_trips_s: list[float] = []
        self.faults: list[str] = []
        self.memory_before = [node.memory_bytes() for node in nodes]
        self.memory_most = list(self.memory_before)
        self._stop = threading.Event()
        self._publisher = RawClient(nodes[0])
        self._publisher.connect("watch-publisher", clean=True, session_s=0)
        self._subscriber = RawClient(nodes[-1])
        self._subscriber.connect("watch-subscriber", clean=True, session_s=600)
        self._subscriber.subscribe(b"watched", 1)
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,)) for work in (self._publish, self._measure_memory)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._publisher.socket.close()
        self._subscriber.socket.close()

    def grown_bytes(self) -> list[int]:
        """By how much the memory of each node was larger than at the beginning, at most."""
        return [most - before for most, before in zip(self.memory_most, self.memory_before, strict=True)]

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run until the end; an error ends the watch and is a fault."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it is reported by the test
            self.faults.append(f"{type(error).__name__}: {error}")

    def _publish(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            text = b"%d" % number
            begun = time.monotonic()
            self._publisher.send(Publish(b"watched", text, 1, False, False, number % 65_535 + 1))
            answer = self._publisher.receive()
            if not isinstance(answer, Ack) or answer.kind != PUBACK or answer.code >= 0x80:
                self.faults.append(f"message {number} was answered with {answer}")
                return
            came = self._subscriber.receive()
            if not isinstance(came, Publish) or came.payload != text:
                self.faults.append(f"message {number} was expected, {came} came")
                return
            self._subscriber.send(Ack(PUBACK, came.packet_id))
            self.round_trips_s.append(time.monotonic() - begun)
            self._stop.wait(PERIOD_S)

    def _measure_memory(self) -> None:
        while not self._stop.wait(MEMORY_S):
            for at, node in enumerate(self.nodes):
                self.memory_most[at] = max(self.memory_most[at], node.memory_bytes())
