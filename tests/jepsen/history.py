"""A history: what clients sent and saw, what was done to the nodes, as events with times of one monotonic clock.

An event is a dictionary that fits into one line of JSON. `t` is its time in microseconds since the run began, `e` its
kind. The other fields by kind (k: the number of a connection, unique in a run):

    run           policy, nodes, replicas, seconds, seed, stream: its filter, partitions: of it, schedule: texts
    phase         name: faults, heal, rest, final, end
    fault         name, do: begin or end, what
    world         cut: [[from, to]] between nodes, down, stopped: nodes, clients: nodes that no client reaches; since t
    unsettled     busy: what clients still waited for when the wait for rest was over
    died          node, status: a process that nobody told to end
    connect       k, c: client id, node, clean, expiry, will: null or {topic, value, qos, delay}; CONNECT was sent
    connack       k, code, present
    publish       k, d: out or in, topic, value, qos, retain, dup, id; an empty value clears a retained message
    puback, pubrec, pubrel, pubcomp    k, d, id, code
    subscribe     k, id, filters: [[filter, qos]];   suback    k, id, codes
    unsubscribe   k, id, filters;                    unsuback  k, id, codes
    pingreq, pingresp   k
    disconnect    k, d, code
    close         k, by: client or peer, why; the connection has ended
    stage         app, number, messages: [[topic, value]]; a transaction with these is begun
    commit        app, number; its commit was sent for the first time
    committed, uncommitted    app, number; a node has confirmed it, or refused it though all was staged
    quiet         k; a reader of retained messages has waited long enough for what it lacks
    ready         node, sent, status: of /health/ready, 0 without an answer
    records       node, sent, partition, from, status, end, records: [[offset, topic, value, publisher]]
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

__all__ = ["Event", "Recorder", "filler", "payload_of", "read", "value_of", "write"]

Event = dict[str, Any]

FILL = b"abcdefghijklmnopqrstuvwxyz0123456789"


class Recorder:
    """Appends events to a file as they happen; `base_ns` of CLOCK_MONOTONIC is the time 0 of all processes of a run."""

    def __init__(self, file: TextIO, base_ns: int) -> None:
        self.file = file
        self.base_ns = base_ns

    def now(self) -> int:
        """Microseconds since the run began."""
        return (time.monotonic_ns() - self.base_ns) // 1000

    def add(self, kind: str, **fields: Any) -> int:
        """Note an event; its time."""
        now = self.now()
        self.file.write(json.dumps({"t": now, "e": kind, **fields}, separators=(",", ":")) + "\n")
        return now


def read(*paths: Path) -> list[Event]:
    """The events of the files of one run, by time; a torn last line (a killed run) is left out."""
    found: list[Event] = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                break
    return sorted(found, key=lambda event: event["t"])


def write(path: Path, events: Iterable[Event]) -> None:
    """Store a history."""
    with path.open("w", encoding="utf-8") as file:
        for event in events:
            file.write(json.dumps(event, separators=(",", ":")) + "\n")


def filler(value: str) -> bytes:
    """Bytes that make payloads of different sizes; they follow from the value, so that a wrong one is noticed."""
    size = sum(value.encode()) * 31 % 193
    start = sum(value.encode()) % len(FILL)
    return (FILL[start:] + FILL * 6)[:size]


def payload_of(value: str) -> bytes:
    """The payload that carries a value."""
    return value.encode() + b" " + filler(value) if value else b""


def value_of(payload: bytes) -> str:
    """The value that a payload carries; a payload that is not exactly that of a value gives `!` and its bytes."""
    head = payload.partition(b" ")[0].decode("utf-8", "replace")
    return head if payload_of(head) == payload else "!" + payload.hex()
