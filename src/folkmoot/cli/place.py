"""Ports of the nodes of a local cluster, the same at every start if they are free. Owns the file `ports.json`."""

from __future__ import annotations

import fcntl
import json
import os
import random
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from folkmoot.cli.error import Refusal

__all__ = ["HOST", "Hold", "Place", "find_places", "fixed_ports", "left_out"]

HOST: Final = "127.0.0.1"
_PORT_MIN: Final = 20_000  # lowest port that this module picks
_TRIES: Final = 100
KINDS: Final = ("mqtt", "admin", "peer")
OPTIONS: Final = {"mqtt": "--port", "admin": "--admin-port"}  # options that set the first port of a kind


class Place:
    """Name and ports of one node."""

    def __init__(self, name: str, ports: dict[str, int]) -> None:
        self.name = name
        self.ports = ports

    def address(self, kind: str) -> str:
        """Return "HOST:PORT" for mqtt, admin or peer."""
        return f"{HOST}:{self.ports[kind]}"


class Hold:
    """An exclusive lock on a folder, until `close`; raises Refusal if another process runs a cluster there."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Refusal(f"cannot use the folder {folder}: {error.strerror}; choose another with --data") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise Refusal(f"a cluster already runs in {folder}: stop it first, or choose another --data") from None

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)


def find_places(folder: Path, count: int, first: Mapping[str, int]) -> list[Place]:
    """Return the places of nodes n1 to n`count`, and record them for the next start.

    `first` has the port of n1 by kind (mqtt, admin); the other nodes get the next ports. Raises Refusal if one is in
    use. A kind that is missing or 0 gets the ports of the last start if they are free, else ports outside the range
    that the system gives to clients: a port must still be free when a killed node restarts.
    """
    last = read_ports(folder / "ports.json")
    held: list[socket.socket] = []
    names = [f"n{number + 1}" for number in range(count)]
    chosen: dict[str, dict[str, int]] = {name: {} for name in names}
    try:
        # Requested ports come first, so that none of them is drawn for another node.
        for kind in sorted(KINDS, key=lambda kind: not first.get(kind)):
            for number, name in enumerate(names):
                asked = first.get(kind, 0) and first[kind] + number
                wanted = asked or last.get(name, {}).get(kind, 0)
                chosen[name][kind] = take_port(wanted, held, OPTIONS[kind] if asked else "", folder)
    finally:
        for probe in held:
            probe.close()
    places = [Place(name, {kind: chosen[name][kind] for kind in KINDS}) for name in names]
    # Nodes that are not started this time keep their ports for the next time.
    last.update({place.name: place.ports for place in places})
    try:
        (folder / "ports.json").write_text(json.dumps(last, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise Refusal(f"cannot write to the folder {folder}: {error.strerror}; choose another with --data") from None
    return places


def left_out(folder: Path, count: int) -> list[str]:
    """Return the nodes that have data in a folder and are not among the first `count`."""
    found = [path.name for path in folder.glob("n[1-9]*") if (path / "format").exists() and path.name[1:].isdigit()]
    return sorted([name for name in found if int(name[1:]) > count], key=lambda name: int(name[1:]))


def left_over(folder: Path) -> str:
    """Return a text that names the nodes of a killed cluster that still run in a folder; "" if there are none."""
    found: list[str] = []
    for lock in sorted(folder.glob("n[1-9]*/lock")):
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                found.append(f"{lock.parent.name} (process {file.read(64).decode('ascii', 'replace').strip()})")
    return f". Nodes of a cluster that was killed still run in {folder}: {', '.join(found)}; stop them" if found else ""


def take_port(wanted: int, held: list[socket.socket], option: str, folder: Path) -> int:
    """Return a free port, `wanted` if possible; its socket is added to `held`, so that no other node gets the port.

    `option` is the option that requested `wanted`, if any: then no other port is tried (Refusal).
    The socket listens, because SO_REUSEADDR would otherwise let another socket bind to the same port. SO_REUSEADDR is
    needed, because ports of recent connections are not free without it.
    """
    for port in ([wanted] if wanted else []) + fixed_ports() + [0]:
        probe = socket.socket()
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.append(probe)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError as error:
            if option:
                text = f"{HOST}:{port}: {error.strerror}; choose another {option}, or 0 for any free port"
                raise Refusal(f"{text}{left_over(folder)}") from None
            continue
        return int(probe.getsockname()[1])
    raise Refusal(f"no port is free on {HOST}")


def fixed_ports() -> list[int]:
    """Return random ports below the range from which the system assigns ports to clients."""
    try:
        end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        end = 32_768
    every = range(_PORT_MIN, end)
    return random.sample(every, min(_TRIES, len(every)))


def read_ports(path: Path) -> dict[str, dict[str, int]]:
    """Return the ports of the last start by node and kind; an unreadable file counts as empty."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): {kind: int(ports[kind]) for kind in KINDS if 0 < int(ports.get(kind, 0)) <= 65_535}
            for name, ports in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
