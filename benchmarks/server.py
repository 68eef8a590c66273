"""The brokers under test, as processes: Folkmoot, Mosquitto, and the forwarder that is the floor.

Owns starting them on free ports of loopback, each on the broker's core, and ending them. It never measures.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.machine import held_to
from folkmoot.client.workload import Target

FOLKMOOT = "Folkmoot"
MOSQUITTO = "Mosquitto"
FLOOR = "floor"

START_S = 30.0
STOP_S = 15.0
MOSQUITTO_PATHS = ("/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto")

# No limit of Mosquitto's may shape a figure: none on queues, flights and connections, and no Nagle delays, which
# Folkmoot does not have either. Without that option one pair of QoS 0 waits 40 ms for every window.
MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
set_tcp_nodelay true
max_inflight_messages 0
max_queued_messages 0
max_connections -1
log_dest none
{extra}
"""


class Server:
    """A broker process: its name, target and pid; `stop` ends it.

    port: of MQTT, for a broker that does not print it; environment: instead of the inherited one.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        core: int | None,
        log: Path,
        port: int | None = None,
        environment: dict[str, str] | None = None,
        start_s: float = START_S,
    ) -> None:
        self.name = name
        self.log = log
        self.start_s = start_s
        # Held to its core before it has threads, so that all of them stay there.
        with log.open("wb") as errors, held_to(core):
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=errors if port else subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        self.pid = self.process.pid
        try:
            self.target = Target("127.0.0.1", port or self._read_port())
            self._await_port()
        except BaseException:
            self.stop()
            raise

    def _read_port(self) -> int:
        """Wait for the line `ready` and return the MQTT port in it."""
        assert self.process.stdout is not None, "a broker without a given port says it"
        deadline = time.monotonic() + self.start_s
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline and selector.select(deadline - time.monotonic()):
                chunk = os.read(self.process.stdout.fileno(), 4096)
                said += chunk
                for line in said.decode(errors="replace").splitlines(keepends=True):
                    if line.startswith("ready") and line.endswith("\n"):
                        address = next(word for word in line.split() if word.startswith("mqtt="))
                        return int(address.rpartition(":")[2])
                if not chunk:
                    break
        raise RuntimeError(f"{self.name} did not start:\n{self._errors()}")

    def _await_port(self) -> None:
        deadline = time.monotonic() + self.start_s
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection((self.target.host, self.target.port), 1.0).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.name} did not start:\n{self._errors()}")

    def _errors(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """End the process, at first politely."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def folkmoot(folder: Path, core: int | None, *options: str) -> Server:
    """Start a Folkmoot node with an empty store in `folder`."""
    listeners = ["--mqtt", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-level", "warning"]
    command = [sys.executable, "-m", "folkmoot", "serve", "--data", str(folder / "data"), *listeners, *options]
    return Server(FOLKMOOT, command, core, folder / "folkmoot.log")


def mosquitto_path() -> str | None:
    """Return where Mosquitto is, None if it is not installed."""
    return shutil.which("mosquitto") or next((path for path in MOSQUITTO_PATHS if Path(path).is_file()), None)


def mosquitto(folder: Path, core: int | None, extra: str = "") -> Server:
    """Start Mosquitto with an empty store in `folder`."""
    path = mosquitto_path()
    assert path is not None, "callers ask mosquitto_path first"
    port = free_port()
    # Started by root it would change to a user who cannot write here.
    extra += "\nuser root" if os.geteuid() == 0 else ""
    config = folder / "mosquitto.conf"
    config.write_text(MOSQUITTO_CONFIG.format(port=port, extra=extra), encoding="utf-8")
    return Server(MOSQUITTO, [path, "-c", str(config)], core, folder / "mosquitto.log", port)


def floor(folder: Path, core: int | None) -> Server:
    """Start the forwarder."""
    script = Path(__file__).with_name("floor.py")
    return Server(FLOOR, [sys.executable, str(script)], core, folder / "floor.log")


def free_port() -> int:
    """Return a port that is free now, for a broker that cannot choose one."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
