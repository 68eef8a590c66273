"""Try the folkmoot that is installed for this Python: versions, a node, a client on a socket, the simulator.

Needs nothing but the package with the requirements of a node. `tests/integration/test_install.py` runs it in a fresh
environment, and cibuildwheel on each wheel. It is run from a folder outside of the tree, so that the sources are not
found; status 1 and a text on stderr say what did not work.

    python scripts/installed.py            what is installed must be compiled
    python scripts/installed.py --pure     it must be pure Python
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

COMMAND = Path(sysconfig.get_path("scripts")) / "folkmoot"
WAIT_S = 300.0  # on a machine that is busy with other tests

# MQTT 3.1.1 by hand: 3.1 (client id "try", clean session), 3.8 (packet 1, "a/#", QoS 1), 3.3 (QoS 1, packet 2).
CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03try"
CONNACK = b"\x20\x02\x00\x00"
SUBSCRIBE = b"\x82\x08\x00\x01\x00\x03a/#\x01"
SUBACK = b"\x90\x03\x00\x01\x01"
PUBLISH = b"\x32\x0c\x00\x03a/b\x00\x02hello"
PUBACK = b"\x40\x02\x00\x02"


class Failure(Exception):
    """What did not work."""


def run(*arguments: str, status: int = 0, given: str = "") -> str:
    """Run a command of folkmoot and return its answer; Failure when it ends with another status.

    The answer of one that is to fail is on stderr.
    """
    done = subprocess.run(
        [COMMAND, *arguments], input=given, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    if done.returncode != status:
        raise Failure(f"folkmoot {' '.join(arguments)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr if status else done.stdout


def demand(there: bool, text: str) -> None:
    """Failure with `text`, unless it is so."""
    if not there:
        raise Failure(text)


def try_version(flavour: str) -> None:
    """Say what is installed, and that it is not the tree."""
    line = run("--version").strip()
    print(line)
    demand(f", {flavour}" in line, f"it should be {flavour}: {line}")
    where = subprocess.run(
        [sys.executable, "-c", "import folkmoot; print(folkmoot.__file__)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    demand(Path(where).is_relative_to(sysconfig.get_path("platlib")), f"folkmoot is not the installed one: {where}")


def try_client(host: str, port: int) -> None:
    """Subscribe, publish, and receive what was published and its acknowledgement."""
    with socket.create_connection((host, port), WAIT_S) as client:

        def exchange(sent: bytes, size: int, *wanted: bytes) -> None:
            client.sendall(sent)
            found = b""
            while len(found) < size and (data := client.recv(size - len(found))):
                found += data
            demand(all(packet in found for packet in wanted), f"after {sent!r} came {found!r}, and not {wanted!r}")

        exchange(CONNECT, len(CONNACK), CONNACK)
        exchange(SUBSCRIBE, len(SUBACK), SUBACK)
        # The packet id of the delivery is the broker's to choose: what is before and behind it is compared.
        exchange(PUBLISH, len(PUBACK) + len(PUBLISH), PUBACK, PUBLISH[:7], PUBLISH[-5:])


def try_node(folder: Path) -> None:
    """Start a node, use it, ask it, and have it end by SIGTERM."""
    listen = ["--mqtt", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--stream", "readings=a/#"]
    with (folder / "node.log").open("w+", encoding="utf-8") as log:
        node = subprocess.Popen(
            [COMMAND, "serve", "--data", str(folder / "data"), *listen], stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert node.stdout is not None
            line = node.stdout.readline() if select.select([node.stdout], [], [], WAIT_S)[0] else ""
            places = dict(word.split("=", 1) for word in line.split()[1:] if "=" in word)
            demand(line.startswith("ready "), f"the node does not serve: {line}\n{(folder / 'node.log').read_text()}")
            host, _, port = places["mqtt"].rpartition(":")
            try_client(host, int(port))
            admin = ["--admin", places["admin"]]
            demand("alone" in run("status", *admin), "folkmoot status does not know the node")
            demand("readings" in run("stream", "list", *admin), "folkmoot stream list does not show the stream")
            demand("hello" in run("stream", "read", "readings", *admin), "the record is not in the stream")
            demand("readings" in run("table", "streams", *admin), "folkmoot table does not show the stream")
        finally:
            node.terminate()
            status = node.wait(WAIT_S)
    demand(status == 0, f"the node ended with status {status}: {(folder / 'node.log').read_text()}")


def try_commands(folder: Path) -> None:
    """Run what needs no node, and one that needs an extra."""
    demand("receive_max" in run("config", "explain", "limits.receive_max"), "config explain knows no limits")
    run("passwd", "--stdin", str(folder / "users"), "ada", given="a password\n")
    demand("ada" in (folder / "users").read_text(encoding="utf-8"), "passwd wrote no user")
    last = run("simulate", "--seeds", "4", "--nodes", "3", "--steps", "40", "--jobs", "2").splitlines()[-1]
    demand("violations 0" in last, f"the simulator found something: {last}")
    print(last)
    try:
        import paho.mqtt  # noqa: F401
    except ImportError:
        text = run("pub", "-t", "a", "-m", "b", status=2)
        demand("pip install 'folkmoot[tools]'" in text, f"folkmoot pub does not say what it needs: {text}")


def main() -> int:
    """Try everything; 1 and what is wrong, or 0."""
    try:
        try_version("pure" if "--pure" in sys.argv[1:] else "compiled")
        with tempfile.TemporaryDirectory() as folder:
            try_node(Path(folder))
            try_commands(Path(folder))
    except (Failure, subprocess.TimeoutExpired) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
