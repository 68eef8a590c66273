"""A fleet of clients of all kinds on a cluster, and the judgement of what they saw.

The judgement: everything acknowledged arrived at every subscriber; nothing arrived that was not sent; at QoS 2 on both
sides nothing arrived twice; the first deliveries of a publisher on a topic are in the order in which it sent them.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import paho.mqtt.client as paho
import pytest

from tests.integration.cluster_client import (
    AioPublisher,
    AioSubscriber,
    Client,
    MosquittoPublisher,
    MosquittoSubscriber,
    Publisher,
    Subscriber,
    payload_of,
    topic_of,
)
from tests.integration.cluster_paho import PahoPublisher, PahoSubscriber
from tests.integration.cluster_rig import Door

__all__ = ["Fleet"]

WAIT_S = 15.0
HOP_S = 0.7
POLL_S = 0.05
TWICE = "twice"
DISORDER = "out of order"
MAY_BE_SPLIT = (TWICE, DISORDER)


class Fleet:
    """Publishers p1, p2, ... and subscribers s1, s2, ...: s2 has QoS 2, and hops from node to node all the time."""

    def __init__(self, door: Door, folder: Path, pace_s: float = 0.02, may_refuse: bool = False) -> None:
        if shutil.which("mosquitto_sub") is None:
            pytest.skip("mosquitto_sub is missing (as root on Debian or Ubuntu: apt-get install mosquitto-clients)")
        self.publishers: list[Publisher] = [
            PahoPublisher("p1", 1, door, pace_s, paho.MQTTv5, may_refuse),
            PahoPublisher("p2", 2, door, pace_s, paho.MQTTv311),
            PahoPublisher("p3", 2, door, pace_s, paho.MQTTv5, may_refuse),
            AioPublisher("p4", 1, door, 2 * pace_s),
            MosquittoPublisher("p5", 2, door, 5 * pace_s),
        ]
        self.subscribers: list[Subscriber] = [
            PahoSubscriber("s1", 2, door, paho.MQTTv5),
            PahoSubscriber("s2", 2, door, paho.MQTTv311),
            AioSubscriber("s3", 1, door),
            MosquittoSubscriber("s4", 1, door, folder),
        ]
        self.hopped = time.monotonic()

    @property
    def clients(self) -> list[Client]:
        return [*self.publishers, *self.subscribers]

    def __enter__(self) -> Self:
        """Subscribe, and only then publish."""
        for subscriber in self.subscribers:
            subscriber.start()
        self._await(lambda: [one.name for one in self.subscribers if not one.subscribed.is_set()], "not subscribed")
        for publisher in self.publishers:
            publisher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self.clients:
            client.stop()
        for client in self.clients:
            if client.is_alive():
                client.join(WAIT_S)

    def run(self, seconds: float) -> None:
        """Let it go on for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._hop()
            time.sleep(POLL_S)

    def flow(self, count: int = 10, timeout_s: float = WAIT_S) -> float:
        """Wait until every publisher has `count` more acknowledged, and every subscriber as many more; the seconds."""
        began = time.monotonic()
        least = [(one, len(one.acknowledged) + count) for one in self.publishers]
        fewest = [(one, len(one.arrived) + count) for one in self.subscribers]

        def waiting() -> list[str]:
            return [one.name for one, goal in least if len(one.acknowledged) < goal] + [
                one.name for one, goal in fewest if len(one.arrived) < goal
            ]

        self._await(waiting, "do not come on", timeout_s)
        return time.monotonic() - began

    def finish(self, timeout_s: float = WAIT_S) -> list[str]:
        """Stop publishing, wait for acknowledgements and arrivals, and judge; the faults that were found."""
        for publisher in self.publishers:
            publisher.quiet.set()
        faults = []
        try:
            self._await(self._unanswered, "have messages without an answer", timeout_s)
            self._await(self._lost, "lack messages", timeout_s)
        except AssertionError as error:
            faults.append(str(error))
        # What comes twice may come late.
        self.run(0.5)
        return faults + self.judge()

    def expect_no_fault(self, timeout_s: float = WAIT_S) -> None:
        """Finish, and fail with what was found."""
        self._expect(self.finish(timeout_s))

    def expect_nothing_lost(self, timeout_s: float = WAIT_S) -> None:
        """Finish, and fail unless all arrived; two sides of a split may both have delivered a message."""
        self._expect([text for text in self.finish(timeout_s) if not text.endswith(MAY_BE_SPLIT)])

    def _expect(self, faults: list[str]) -> None:
        assert not faults, f"{len(faults)} faults: {'; '.join(faults[:20])} ({self.tell()})"

    def judge(self) -> list[str]:
        """All that is wrong with what was seen so far."""
        faults = [text for client in self.clients for text in client.broken]
        paho_publishers = [one for one in self.publishers if isinstance(one, PahoPublisher)]
        faults += [
            f"{one.name} was refused {one.refused[:10]}"
            for one in paho_publishers
            if not one.may_refuse and one.refused
        ]
        faults += [f"lost: {text}" for text in self._lost()]
        for subscriber in self.subscribers:
            faults += self._judge(subscriber)
        return faults

    def _judge(self, subscriber: Subscriber) -> list[str]:
        faults = []
        by_name = {one.name: one for one in self.publishers}
        seen: set[tuple[str, int]] = set()
        last: dict[str, int] = {}
        for topic, payload in list(subscriber.arrived):
            name, number = read(payload)
            publisher = by_name.get(name)
            if publisher is None or not 0 < number <= publisher.sent or topic != topic_of(name, number):
                faults.append(f"{subscriber.name} got what nobody sent: {payload!r} on {topic}")
                continue
            if (name, number) in seen:
                if subscriber.qos == publisher.qos == 2:
                    faults.append(f"{subscriber.name} got {name} {number} {TWICE}")
                continue
            seen.add((name, number))
            if number < last.get(topic, 0):
                faults.append(f"{subscriber.name} got {name} {number} after {last[topic]}: {DISORDER}")
            last[topic] = max(number, last.get(topic, 0))
        return faults

    def _unanswered(self) -> list[str]:
        found = []
        for publisher in self.publishers:
            refused = len(publisher.refused) if isinstance(publisher, PahoPublisher) else 0
            if publisher.repeats and len(publisher.acknowledged) + refused < publisher.sent:
                found.append(f"{publisher.name}{publisher.owed()}")
        return found

    def _lost(self) -> list[str]:
        """What was acknowledged and has not arrived."""
        found = []
        for subscriber in self.subscribers:
            there = {payload for _, payload in list(subscriber.arrived)}
            for publisher in self.publishers:
                lost = [one for one in sorted(publisher.acknowledged) if payload_of(publisher.name, one) not in there]
                if lost:
                    found.append(f"{subscriber.name} lacks {len(lost)} of {publisher.name}: {lost[:10]}")
        return found

    def _hop(self) -> None:
        if time.monotonic() - self.hopped > HOP_S:
            self.hopped = time.monotonic()
            self.subscribers[1].hop()

    def _await(self, waiting: object, what: str, timeout_s: float = WAIT_S) -> None:
        """Wait until the list of those who are not there yet is empty."""
        assert callable(waiting)
        until = time.monotonic() + timeout_s
        while names := waiting():
            broken = [text for client in self.clients for text in client.broken]
            assert not broken, broken
            assert time.monotonic() < until, f"after {timeout_s} s: {', '.join(names)} {what}; {self.tell()}"
            self._hop()
            time.sleep(POLL_S)

    def tell(self) -> str:
        """What everybody has, in a line."""
        sent = [f"{one.name} {len(one.acknowledged)}/{one.sent} c{one.connects}" for one in self.publishers]
        return ", ".join(sent + [f"{one.name} {len(one.arrived)} c{one.connects}" for one in self.subscribers])


def read(payload: str) -> tuple[str, int]:
    """Who sent a message, and its number; ("", 0) when it is none of the fleet's."""
    words = payload.split(" ")
    if len(words) != 3 or not words[1].isdigit() or payload_of(words[0], int(words[1])) != payload:
        return "", 0
    return words[0], int(words[1])
