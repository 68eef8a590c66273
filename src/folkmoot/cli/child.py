"""A node as a child process: starts it, forwards its output line by line, and waits for its end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["Child", "Say"]

LINE_BYTES_MAX: Final = 65_536

Say = Callable[[str, str], None]
"""`say(name, line)` writes one line of a node's log."""


class Child:
    """One `folkmoot serve`. `ready` is called with the words of its line `ready`, `say` with every line of its log.

    The process has its own session: Ctrl-C on the terminal reaches only the parent, which decides what to do.
    """

    def __init__(self, name: str, arguments: Sequence[str], ready: Callable[[Child, dict[str, str]], None], say: Say):
        self.name = name
        self.arguments = list(arguments)
        self._ready = ready
        self._say = say
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> int:
        """Start the node, wait for its end, and return its exit status (negative for a signal)."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "folkmoot", "serve"),
            *self.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        out, log = self._process.stdout, self._process.stderr
        assert out is not None
        assert log is not None
        await asyncio.gather(self._lines(out, self._told), self._lines(log, lambda line: self._say(self.name, line)))
        return await self._process.wait()

    async def _lines(self, source: asyncio.StreamReader, take: Callable[[str], None]) -> None:
        """Forward complete lines; a line above `LINE_BYTES_MAX` is split, which bounds the memory."""
        rest = b""
        while data := await source.read(LINE_BYTES_MAX):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                lines.append(rest)
                rest = b""
            for line in lines:
                take(line.decode("utf-8", "replace"))
        if rest:
            take(rest.decode("utf-8", "replace"))

    def _told(self, line: str) -> None:
        words = line.split()
        if words and words[0] == "ready":
            self._ready(self, dict(word.split("=", 1) for word in words[1:] if "=" in word))
        else:
            self._say(self.name, line)

    @property
    def pid(self) -> int:
        """The process id; 0 if no process runs."""
        return 0 if self._process is None or self._process.returncode is not None else self._process.pid

    def stop(self) -> None:
        """Ask the node to stop; the second time, to stop at once."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the node."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            try:
                self._process.send_signal(number)
            except ProcessLookupError:
                return
