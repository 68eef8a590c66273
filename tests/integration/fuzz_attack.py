"""Runs programs against the listeners of nodes for some seconds, in a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self

from tests.integration.fuzz_program import CLOSE, HALF_CLOSE, RESET, Program, draw

__all__ = ["Attack"]

LINGER_RESET = struct.pack("ii", 1, 0)
WAIT_S = 2.0  # for a write that the node does not take
THREADS = 16


class Attack:
    """Programs of the seeds from `first` on, each against one of the listeners: pairs of a kind and an address.

    It begins with the block and ends `seconds` later; `wait` returns how many programs ran.
    """

    def __init__(self, places: list[tuple[str, tuple[str, int]]], first: int, seconds: float) -> None:
        # It must not share the interpreter's lock with the clients that measure.
        fork = multiprocessing.get_context("fork")
        self._ran, ran = fork.Pipe(duplex=False)
        self._process = fork.Process(target=lambda: ran.send(attack(places, first, time.monotonic() + seconds)))
        self._end_s = seconds + 120.0

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()

    def wait(self) -> int:
        """Wait for the end, and return how many programs ran."""
        assert self._ran.poll(self._end_s), "the attack did not end"
        return int(self._ran.recv())


def run(program: Program, place: tuple[str, int]) -> None:
    """Run a program; that the node refuses, closes or resets is its right."""
    with contextlib.suppress(OSError), socket.create_connection(place, WAIT_S) as sock:
        sock.settimeout(WAIT_S)
        for pause_s, data in program.chunks:
            if pause_s:
                time.sleep(pause_s)
            sock.sendall(data)
            if program.reads:
                _drain(sock)
        if program.end == HALF_CLOSE:
            sock.shutdown(socket.SHUT_WR)
        if program.end == RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
        elif program.end != CLOSE:
            time.sleep(program.held_s)


def _drain(sock: socket.socket) -> None:
    """Take what has come."""
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while sock.recv(1 << 16):
            pass
    sock.settimeout(WAIT_S)


def attack(places: list[tuple[str, tuple[str, int]]], first: int, end_s: float) -> int:
    """Run the programs of seeds from `first` on, each against one of the listeners; return how many."""
    seeds = itertools.count(first)

    def work() -> None:
        while time.monotonic() < end_s:
            seed = next(seeds)
            kind, place = places[seed % len(places)]
            run(draw(kind, seed), place)

    workers = [threading.Thread(target=work) for _ in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return next(seeds) - first
