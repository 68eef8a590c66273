"""Ports of the nodes of a local cluster: the same at every start where they are free. Owns the file `ports.json`."""

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
_PORT_MIN: Final = 20_000  # of those that this module picks
_TRIES: Final = 100
KINDS: Final = ("mqtt", "admin", "peer")
OPTIONS: Final = {"mqtt": "--port", "admin": "--admin-port"}  # where the first port of a kind can be asked for


class Place:
    """Name and ports of one node."""

    def __init__(self, name: str, ports: dict[str, int]) -> None:
        self.name = name
        self.ports = ports

    def address(self, kind: str) -> str:
        """The "HOST:PORT" for mqtt, admin or peer."""
        return f"{HOST}:{self.ports[kind]}"


class Hold:
    """A folder that this process alone runs a cluster in, until `close`; Refusal when another one does."""

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
            raise Refusal(f"a cluster runs in {folder} already: stop it first, or choose another --data") from None

    def close(self) -> None:
        """Let others run a cluster there."""
        os.close(self._lock)


def find_places(folder: Path, count: int, first: Mapping[str, int]) -> list[Place]:
    """The places of nodes n1 to n`count`, written down for the next start.

    `first` has the port of n1 by kind (mqtt, admin), the other nodes have the next ones; Refusal when one is in use.
    Kinds that it lacks, or has as 0, get the ports of the last start where these are free, else ports that the system
    gives to no client: a port must still be free when a node that was killed is started again.
    """
    last = read_ports(folder / "ports.json")
    held: list[socket.socket] = []
    names = [f"n{number + 1}" for number in range(count)]
    chosen: dict[str, dict[str, int]] = {name: {} for name in names}
    try:
        # Those that were asked for come first: none of them is drawn for another node.
        for kind in sorted(KINDS, key=lambda kind: not first.get(kind)):
            for number, name in enumerate(names):
                asked = first.get(kind, 0) and first[kind] + number
                wanted = asked or last.get(name, {}).get(kind, 0)
                chosen[name][kind] = take_port(wanted, held, OPTIONS[kind] if asked else "", folder)
    finally:
        for probe in held:
            probe.close()
    places = [Place(name, {kind: chosen[name][kind] for kind in KINDS}) for name in names]
    # Nodes that are left out this time keep their ports for the next.
    last.update({place.name: place.ports for place in places})
    try:
        (folder / "ports.json").write_text(json.dumps(last, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise Refusal(f"cannot write to the folder {folder}: {error.strerror}; choose another with --data") from None
    return places


def left_out(folder: Path, count: int) -> list[str]:
    """The nodes that have data in a folder and are not among the first `count`."""
    found = [path.name for path in folder.glob("n[1-9]*") if (path / "format").exists() and path.name[1:].isdigit()]
    return sorted([name for name in found if int(name[1:]) > count], key=lambda name: int(name[1:]))


def left_over(folder: Path) -> str:
    """Say which nodes of a cluster that was killed still run in a folder; "" when there is none."""
    found: list[str] = []
    for lock in sorted(folder.glob("n[1-9]*/lock")):
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                found.append(f"{lock.parent.name} (process {file.read(64).decode('ascii', 'replace').strip()})")
    return f". Nodes of a cluster that was killed still run in {folder}: {', '.join(found)}; stop them" if found else ""


def take_port(wanted: int, held: list[socket.socket], option: str, folder: Path) -> int:
    """A port that nobody listens on, `wanted` if possible; its socket goes to `held`, so that no other gets it too.

    `option` is the option that asked for `wanted`, if one did: then there is no other choice (Refusal).
    The socket listens: with SO_REUSEADDR, without which ports of the last minute's connections are not free, another
    one could be bound to the same port.
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
                text = f"{HOST}:{port}: {error.strerror}; choose another {option}, or 0 for any that is free"
                raise Refusal(f"{text}{left_over(folder)}") from None
            continue
        return int(probe.getsockname()[1])
    raise Refusal(f"no port is free on {HOST}")


def fixed_ports() -> list[int]:
    """Ports to try that the system gives to nobody who does not name them: those below its range, in random order."""
    try:
        end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        end = 32_768
    every = range(_PORT_MIN, end)
    return random.sample(every, min(_TRIES, len(every)))


def read_ports(path: Path) -> dict[str, dict[str, int]]:
    """The ports of the last start by node and kind; what cannot be read counts as none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): {kind: int(ports[kind]) for kind in KINDS if 0 < int(ports.get(kind, 0)) <= 65_535}
            for name, ports in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
