"""The tables of a cluster over HTTP: what there is, and all rows of one partition or node, of one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from folkmoot.client.column import LIVE, TABLES
from folkmoot.client.nodes import Nodes, split_urls
from folkmoot.client.problem import BadAnswer, BadQuestion, StreamProblem

__all__ = ["Part", "TableClient"]

TIMEOUT_S: Final = 15.0
ATTEMPTS: Final = 5
"""A partition whose snapshot is lost, because its leader is gone or the reader was slow, is read anew so many times."""
_PROBLEMS: Final[dict[int, type[StreamProblem]]] = {400: BadQuestion}


class Part:
    """What is read at once: a partition, or (for transient sessions) a node; the other is None."""

    def __init__(self, partition: int | None, node: str | None) -> None:
        self.partition = partition
        self.node = node

    def __repr__(self) -> str:
        return f"partition {self.partition}" if self.node is None else f"node {self.node}"


class TableClient:
    """A reader of tables. `urls`: admin addresses of nodes, a list or a text with commas; `token`: the bearer token.

    Any node answers for all; one that cannot be reached is passed over, and asked again for `patience_s` seconds. All
    methods raise the exceptions of `folkmoot.client.problem`. One instance belongs to one thread.
    """

    def __init__(
        self, urls: str | Sequence[str], token: str | None = None, patience_s: float = 60.0, first: int = 0
    ) -> None:
        found = split_urls(urls if isinstance(urls, str) else ",".join(urls))
        self.nodes = Nodes(found, token, patience_s, TIMEOUT_S, first)

    def parts(self, table: str) -> list[Part]:
        """Return what a whole table consists of, at this moment."""
        answer = self.nodes.get("/api/v1/tables", {}).checked(_PROBLEMS)
        found = answer.object()
        if not isinstance(found.get("partitions"), int) or not isinstance(found.get("nodes"), list):
            raise BadAnswer(f"{answer.url} does not say which partitions there are")
        parts = [Part(partition, None) for partition in range(found["partitions"])]
        if table in LIVE:
            parts.extend(Part(None, str(node)) for node in found["nodes"])
        return parts

    def rows(self, table: str, part: Part, payload: bool = False) -> list[dict[str, Any]]:
        """Return all rows of one part, of one snapshot; values as in `folkmoot.client.column`.

        A node that has left meanwhile has taken its transient sessions with it: there are no rows.
        """
        if table not in TABLES:
            raise BadQuestion(f"there is no table {table!r}; there are: {', '.join(TABLES)}")
        for _ in range(ATTEMPTS):
            rows = self._attempt(table, part, payload)
            if rows is not None:
                return rows
        raise BadAnswer(f"{table}, {part}: its snapshot was lost {ATTEMPTS} times; the cluster is changing too much")

    def _attempt(self, table: str, part: Part, payload: bool) -> list[dict[str, Any]] | None:
        fields = {"node": part.node} if part.node is not None else {"partition": str(part.partition)}
        if payload:
            fields["payload"] = "true"
        rows: list[dict[str, Any]] = []
        while True:
            answer = self.nodes.get("/api/v1/tables/" + quote(table, safe=""), fields)
            if answer.status == 410:
                return None
            if answer.status == 404 and part.node is not None:
                return []
            found = answer.checked(_PROBLEMS).object()
            if not isinstance(found.get("rows"), list) or "next" not in found:
                raise BadAnswer(f"{answer.url} answered without rows")
            rows.extend(found["rows"])
            if found["next"] is None:
                return rows
            fields["after"] = str(found["next"])

    def close(self) -> None:
        """Close all connections."""
        self.nodes.close()
