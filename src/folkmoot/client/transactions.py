"""Transactions of a cluster over HTTP: stage messages, commit them at once, and what operators see.

A transaction is (app, number): parts in chunks are staged at any node, and one commit publishes all of them, once,
however often it is repeated. A node that dies meanwhile is passed over. docs/adr/0010.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from folkmoot.client.nodes import Nodes, split_urls
from folkmoot.client.problem import BadQuestion, NoSuchApp, NotPossible, StreamProblem

__all__ = ["CHUNK_BYTES", "CHUNK_MESSAGES", "PartWriter", "TransactionClient"]

CHUNK_BYTES: Final = 131_072
CHUNK_MESSAGES: Final = 256
"""What a node takes as one chunk, `folkmoot.partition.staged`."""

# A commit waits for the disks of all replicas, and for a new leader when one dies.
TIMEOUT_S: Final = 20.0
PACKETS: Final = "application/vnd.folkmoot.packets"
_BASE: Final = "/api/v1/transactions"
_PROBLEMS: Final[dict[int, type[StreamProblem]]] = {
    400: BadQuestion,
    404: NoSuchApp,
    409: NotPossible,
    413: BadQuestion,
}


class TransactionClient:
    """Asks one of several equal nodes. `urls`: admin addresses, a list or a text with commas; `token`: bearer token.

    A request that no node answers, or that the cluster cannot carry out now (no leader, no room), is repeated for
    `patience_s` seconds. `first`: the index of the node to begin with. All methods raise the exceptions of
    `folkmoot.client.problem`. One instance belongs to one thread.
    """

    def __init__(
        self, urls: str | Sequence[str], token: str | None = None, patience_s: float = 60.0, first: int = 0
    ) -> None:
        found = split_urls(urls if isinstance(urls, str) else ",".join(urls))
        self.nodes = Nodes(found, token, patience_s, TIMEOUT_S, first)

    def stage(self, app: str, number: int, part: str, chunk: int, packets: bytes) -> bool:
        """Keep MQTT 5 PUBLISH packets as a chunk; True when the transaction was committed before. Raises BadQuestion.

        Staging the same chunk again replaces it.
        """
        path = f"{_path(app)}/{number}/{quote(part, safe='')}/{chunk}"
        return bool(self.nodes.send("PUT", path, packets, PACKETS).checked(_PROBLEMS).object().get("committed"))

    def commit(self, app: str, number: int, parts: Sequence[tuple[str, int]]) -> bool:
        """Commit a transaction: its parts in order, with their numbers of chunks; True when it was committed before.

        Raises NotPossible when something is not there: it was never staged, or has expired.
        """
        body = json.dumps({"parts": [[name, chunks] for name, chunks in parts]}).encode()
        answer = self.nodes.send("POST", f"{_path(app)}/{number}/commit", body, "application/json")
        return bool(answer.checked(_PROBLEMS).object().get("repeated"))

    def abort(self, app: str, number: int, part: str) -> None:
        """Drop what is staged as a part, unless its transaction is committed."""
        path = f"{_path(app)}/{number}/{quote(part, safe='')}"
        self.nodes.send("DELETE", path, b"", PACKETS).checked(_PROBLEMS)

    def apps(self) -> tuple[list[dict[str, Any]], bool]:
        """Return all apps, and whether none is missing because its home has no leader now."""
        found = self.nodes.get(_BASE, {}).checked(_PROBLEMS).object()
        return list(found.get("transactions", [])), bool(found.get("complete"))

    def describe(self, app: str) -> dict[str, Any]:
        """Return one app; raises NoSuchApp."""
        return self.nodes.get(_path(app), {}).checked(_PROBLEMS).object()

    def forget(self, app: str) -> None:
        """Forget an app, so that its numbers begin anew; raises NoSuchApp, or NotPossible while messages wait."""
        self.nodes.send("DELETE", _path(app), b"", PACKETS).checked(_PROBLEMS)

    def close(self) -> None:
        """Close all connections."""
        self.nodes.close()


class PartWriter:
    """Stages one part of a transaction, packet by packet; `chunks` and `messages`: how many it has staged."""

    def __init__(self, client: TransactionClient, app: str, number: int, part: str) -> None:
        self.client = client
        self.app = app
        self.number = number
        self.part = part
        self.chunks = 0
        self.messages = 0
        self._packets: list[bytes] = []
        self._bytes = 0

    def add(self, packet: bytes) -> None:
        """Add an MQTT 5 PUBLISH packet."""
        if self._packets and (self._bytes + len(packet) > CHUNK_BYTES or len(self._packets) >= CHUNK_MESSAGES):
            self.flush()
        self._packets.append(packet)
        self._bytes += len(packet)

    @property
    def waiting(self) -> list[bytes]:
        """The packets that are not staged yet: of a chunk that was refused, all of them."""
        return self._packets

    def flush(self) -> None:
        """Stage what was added, if anything was."""
        if self._packets:
            self.client.stage(self.app, self.number, self.part, self.chunks, b"".join(self._packets))
            self.chunks += 1
            self.messages += len(self._packets)
            self._packets = []
            self._bytes = 0


def _path(app: str) -> str:
    return f"{_BASE}/{quote(app, safe='')}"
