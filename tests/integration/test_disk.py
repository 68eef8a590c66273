"""A disk that fills up: refused in time, nothing acknowledged that is not stored, back to work when there is room."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.mqtt.packet import PUBACK, Ack, Publish
from tests.integration.serving import RawClient, Serving, await_true
from tests.integration.small_disk import mounted

ANY = "127.0.0.1:0"
SIZE = 48 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB."""
    with mounted(tmp_path / "disk", SIZE) as place:
        yield place


def fill(place: Path, leave_bytes: int) -> Path:
    """Take all room but `leave_bytes`."""
    status = os.statvfs(place)
    filler = place / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - leave_bytes)
    return filler


def publish(client: RawClient, number: int, size: int = 1000, wait_s: float = 10) -> int | None:
    """Publish a stored message; the reason code of its acknowledgement, or None without one."""
    client.send(Publish(b"kept/x", b"%06d" % number + bytes(size), 1, False, False, number))
    packet = client.receive(wait_s)
    if packet is None:
        return None
    assert isinstance(packet, Ack)
    assert (packet.kind, packet.packet_id) == (PUBACK, number)
    return packet.code


def stored(serving: Serving) -> set[int]:
    """The numbers of the messages in the stream, read by MQTT replay."""
    with RawClient(serving) as reader:
        reader.connect("reader", clean=True, session_s=0)
        reader.subscribe(b"$stream/kept/earliest/#", 0)
        found = set()
        while (packet := reader.receive(1.0)) is not None:
            if isinstance(packet, Publish):
                found.add(int(packet.payload[:6]))
        return found


def test_nothing_is_stored_below_the_least_free_space(small_disk: Path) -> None:
    config = '[node]\nfree_bytes_min = "16MiB"\n'
    with Serving(small_disk / "data", "--mqtt", ANY, "--stream", "kept=kept/#", config=config) as node:
        with RawClient(node) as client:
            client.connect("p", clean=True, session_s=0)
            assert publish(client, 1) in (0x00, 0x10)
            filler = fill(small_disk, 10 << 20)
            await_true(lambda: "storage_full" in node.log())
            assert publish(client, 2) == 0x97
            client.send(Publish(b"not/kept", b"", 1, False, False, 3))
            assert client.expect_ack(PUBACK).code in (0x00, 0x10), "what needs no disk goes on"
            filler.unlink()
            await_true(lambda: "storage_has_room" in node.log())
            assert publish(client, 4) in (0x00, 0x10)
        assert stored(node) == {1, 4}
        assert node.stop() == 0


def test_a_write_that_fails_is_not_acknowledged_and_is_done_when_there_is_room(small_disk: Path) -> None:
    config = '[node]\nfree_bytes_min = "0"\n'
    with Serving(small_disk / "data", "--mqtt", ANY, "--stream", "kept=kept/#", config=config) as node:
        acknowledged: set[int] = set()
        refused: set[int] = set()
        with RawClient(node) as client:
            client.connect("p", clean=True, session_s=0)
            filler = fill(small_disk, 3 << 20)
            number = 0
            while number < 500:
                number += 1
                code = publish(client, number, 50_000, wait_s=1.5)
                if code is None:
                    break
                (refused if code == 0x97 else acknowledged).add(number)
                if code == 0x97:
                    break
            assert number < 200, "the disk never became full"
            assert len(acknowledged) > 10
            await_true(lambda: "storage_full" in node.log())
            assert node.process is not None
            assert node.process.poll() is None
            before = node.cpu_s()
            time.sleep(1)
            assert node.cpu_s() - before < 0.5, "it waits for room without running in circles"
            filler.unlink()
            await_true(lambda: "storage_has_room" in node.log())
            if number not in refused:
                assert client.expect_ack(PUBACK).packet_id == number
                acknowledged.add(number)
            assert publish(client, number + 1) in (0x00, 0x10)
            acknowledged.add(number + 1)
        assert stored(node) == acknowledged
        node.restart()
        assert stored(node) == acknowledged
        assert node.stop() == 0


def test_kill_9_on_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    config = '[node]\nfree_bytes_min = "0"\n'
    with Serving(small_disk / "data", "--mqtt", ANY, "--stream", "kept=kept/#", config=config) as node:
        acknowledged = set()
        with RawClient(node) as client:
            client.connect("p", clean=True, session_s=0)
            filler = fill(small_disk, 2 << 20)
            for number in range(1, 200):
                if publish(client, number, 50_000, wait_s=1.0) not in (0x00, 0x10):
                    break
                acknowledged.add(number)
        node.kill()
        result = subprocess.run(node.command(), timeout=30, capture_output=True, text=True, check=False)
        if result.returncode == 1:
            assert "free some space" in result.stderr
        filler.unlink()
        node.start()
        found = stored(node)
        assert acknowledged <= found
        assert len(found) <= len(acknowledged) + 1, "at most the one in flight"
