"""The attacks of the benchmark do what they say, and their table says what was found."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from benchmarks import attacks
from benchmarks.figure import figure
from benchmarks.hostile import ATTACKS, Places, Stream, paced, silent, streams
from benchmarks.rounds import Figures


class Taker:
    """Answers each chunk with one byte, and closes after `most` bytes; over: it had `enough` connections."""

    def __init__(self, most: int, enough: int) -> None:
        self.most = most
        self.enough = enough
        self.over = threading.Event()
        self.closing = threading.Event()
        self.taken: list[bytearray] = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(0.05)
        self.places: Places = {"mqtt": self.server.getsockname()}
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        with contextlib.ExitStack() as stack:
            while not self.closing.is_set():
                with contextlib.suppress(TimeoutError):
                    sock = stack.enter_context(self.server.accept()[0])
                    self.taken.append(bytearray())
                    threading.Thread(target=self._take, args=(sock, self.taken[-1]), daemon=True).start()
                    if len(self.taken) >= self.enough:
                        self.over.set()

    def _take(self, sock: socket.socket, taken: bytearray) -> None:
        with contextlib.suppress(OSError), sock:
            while len(taken) < self.most and (data := sock.recv(1000)):
                taken += data
                sock.sendall(b"!")

    def close(self) -> None:
        self.closing.set()
        self.thread.join()
        self.server.close()


@pytest.fixture
def taker() -> Iterator[Callable[[int, int], Taker]]:
    with contextlib.ExitStack() as stack:

        def make(most: int, enough: int) -> Taker:
            made = Taker(most, enough)
            stack.callback(made.close)
            return made

        yield make


def test_a_stream_greets_sends_its_amount_and_begins_anew(taker: Callable[[int, int], Taker]) -> None:
    server = taker(1 << 20, 6)
    streams("mqtt", Stream((b"hello", b"again"), b"abc", 3_000, reads=True))(server.places, 2, server.over)
    whole = b"helloagain" + b"abc" * 1_000
    assert len(server.taken) >= 6
    assert sum(bytes(one) == whole for one in server.taken) >= 4, "all but those that were on when it was over"
    assert all(whole.startswith(one) for one in server.taken)


def test_a_stream_that_is_closed_begins_anew(taker: Callable[[int, int], Taker]) -> None:
    server = taker(100, 3)
    streams("mqtt", Stream((), b"x" * 5_000, 1 << 30))(server.places, 1, server.over)
    assert len(server.taken) >= 3


def test_silent_connections_say_nothing(taker: Callable[[int, int], Taker]) -> None:
    server = taker(1, 6)
    silent("mqtt", 3)(server.places, 2, server.over)
    assert server.taken == [bytearray()] * 6


def test_what_is_paced_comes_one_by_one_until_it_is_over() -> None:
    over = threading.Event()
    numbers = []
    for number, _ in paced(1e6, over):
        numbers.append(number)
        if number == 4:
            over.set()
    assert numbers == [0, 1, 2, 3, 4]


def test_amounts_are_named_ten_times_as_large() -> None:
    names = [(attack.named(1), attack.named(10)) for attack in ATTACKS]
    assert ("1,100 silent connections to `mqtts`", "11,000 silent connections to `mqtts`") in names
    assert len(set(itertools.chain(*names))) == 2 * len(ATTACKS)


def row(name: str, p99_ms: float, refused: int = 0, alive: int = 3) -> Figures:
    found: Figures = {"attack": name, "trips": 1000, "p50_ms": 5.0, "p99_ms": p99_ms, "max_ms": 99.0, "alive": alive}
    return found | {"entered": 20, "refused": refused, "enter_p99_ms": 80.0, "memory_mebibytes": 160, "fault": ""}


def test_the_table_has_what_others_felt_and_what_went_wrong() -> None:
    rows = [row("none", 20.0), row("a flood", 123.4, 2), row("an end", 30.0, alive=2)]
    figures: Figures = {"seconds": 10.0, "rows": rows, "faults": {"an end": "a node was out"}}
    text = attacks.table(figures)
    assert "| a flood | 1,000 | 5.00 | 123 | 99.0 | 20 of 22 | 80.0 | 160 | 3 of 3 |" in text
    assert "| 2 of 3 |" in text
    assert text.endswith("- an end: a node was out")
    assert figure("attacks.p99_ms", "", {"sections": {"attacks": {"figures": figures}}}) == "123"


def test_quantiles_are_in_milliseconds() -> None:
    assert attacks.at([], 0.99) == 0
    found = [number / 1000 for number in range(200, 0, -1)]
    assert (attacks.at(found, 0.5), attacks.at(found, 0.99), attacks.at(found, 1.0)) == (101, 199, 200)


def test_a_device_measures_from_when_a_message_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that stands still for a moment delays all messages that were due meanwhile."""
    device = attacks.Device.__new__(attacks.Device)
    device.trips_s, device.due = [], [1.0, 1.02, 1.04]
    device.acknowledged, device.delivered = [1.5, 1.5, 1.5], [1.6, 1.4, 1.6]
    device.line = device.reader = type("Line", (), {"socket": None})()
    monkeypatch.setattr("benchmarks.attacks.select.select", lambda *_: ([], [], []))
    device.take(0)
    assert device.trips_s == pytest.approx([0.6, 0.48, 0.56])
