"""The HTTP routes of tables: the state of the cluster in pages, one partition (or one node) at a time.

Every node answers for all partitions: as with streams, it queries the leaders of those that it does not lead. Owns the
paths and the validation of parameters; `folkmoot.report.table` owns the pages and the lifetime of their snapshots.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from folkmoot.admin.answer import failure
from folkmoot.admin.cluster import ClusterStatus
from folkmoot.admin.streams import NoLeader
from folkmoot.admin.token import refusal
from folkmoot.client.column import LIVE, TABLES, columns_of
from folkmoot.query.question import BUSY, FOUND, GONE, REFUSED, Answer
from folkmoot.query.table_cursor import decode_cursor
from folkmoot.report.table import HERE, PAYLOAD

__all__ = ["TableSource", "table_routes"]

PARAMETERS: Final = ("partition", "node", "after", "payload")
CURSOR_TEXT_MAX: Final = 262_144  # at most, a key has a client id and a filter


class Wrong(Exception):
    """A parameter is invalid; the text names it and says what is valid."""


class TableSource(ABC):
    """The source of pages."""

    @abstractmethod
    async def page(self, name: bytes, partition: int, node_id: str, flags: int, after: bytes) -> Answer:
        """Return a page, see `folkmoot.report.table.Tables.look`; raises NoLeader, or ValueError at invalid input."""


class TableApi:
    """The endpoints; `cluster` knows the partitions, the nodes and the followers."""

    def __init__(self, source: TableSource, cluster: ClusterStatus, token: str | None) -> None:
        self._source = source
        self._cluster = cluster
        self._token = token

    async def tables(self, request: Request) -> Response:
        """GET /api/v1/tables: the tables with their columns, and the partitions and nodes to request them by."""
        refused = refusal(request, self._token)
        if refused is not None:
            return refused
        tables = [
            {
                "name": name,
                "columns": [
                    {"name": column.name, "type": column.kind, "meaning": column.meaning}
                    for column in columns_of(name, payload=True)
                ],
                "live": name in LIVE,
            }
            for name in TABLES
        ]
        return JSONResponse({"tables": tables, "partitions": self._partitions(), "nodes": self._nodes()})

    def _partitions(self) -> int:
        partitions: Any = self._cluster.status()["partitions"]
        return int(partitions["total"])

    def _nodes(self) -> list[str]:
        nodes: Any = self._cluster.status()["nodes"]
        return [str(node["id"]) for node in nodes if node["state"] != "away"]

    async def page(self, request: Request) -> Response:
        """GET /api/v1/tables/NAME?partition=N|node=ID[&after=KEY][&payload=true]."""
        refused = refusal(request, self._token)
        if refused is not None:
            return refused
        name: str = request.path_params["name"]
        if name not in TABLES:
            return failure(404, f"there is no table {name[:64]!r}; there are: {', '.join(TABLES)}")
        outside = self._cluster.outside()
        if outside:
            return failure(503, outside)
        try:
            partition, node_id = self._place(request, name)
            flags = _flags(request, name)
            after = _after(request)
        except Wrong as wrong:
            return failure(400, str(wrong))
        try:
            answer = await self._source.page(name.encode(), partition, node_id, flags, after)
        except NoLeader as problem:
            return _retry(str(problem))
        return self._answered(answer, name, partition, node_id)

    def _place(self, request: Request, name: str) -> tuple[int, str]:
        given = request.query_params
        for parameter in given:
            if parameter not in PARAMETERS:
                raise Wrong(f"there is no parameter {parameter[:40]!r}; there are: {', '.join(PARAMETERS)}")
        text, node_id = given.get("partition"), given.get("node")
        if (text is None) == (node_id is None):
            raise Wrong("give one of the parameters 'partition' and 'node'")
        if text is None:
            assert node_id is not None
            if name not in LIVE:
                raise Wrong(f"parameter 'node': {name} is available by 'partition' only")
            return HERE, node_id
        count = self._partitions()
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < count):
            raise Wrong(f"parameter 'partition' is {text[:40]!r}: it must be an integer from 0 to {count - 1}")
        return int(text), ""

    def _answered(self, answer: Answer, name: str, partition: int, node_id: str) -> Response:
        if answer.status == GONE:
            return failure(410, f"the pages of {name} were read too slowly, or their leader has changed: begin again")
        if answer.status == BUSY:
            return _retry("too many tables are read at once")
        if answer.status == REFUSED:
            return failure(404, f"there is no node {node_id[:64]!r}; there are: {', '.join(self._nodes())}")
        if answer.status != FOUND or len(answer.chunks) != 2:
            return failure(500, answer.text or "another node gave no table")
        rows, following = answer.chunks
        if name == "partitions":
            rows = self._with_roles(rows)
        place = {"node": node_id} if partition == HERE else {"partition": partition}
        head = json.dumps({"table": name, **place, "next": following.hex() or None})
        return Response(head[:-1].encode() + b', "rows": ' + rows + b"}", media_type="application/json")

    def _with_roles(self, rows: bytes) -> bytes:
        """Add the followers: roles are part of the configuration, which every member has."""
        entries = self._cluster.partitions()
        found = []
        for row in json.loads(rows):
            entry: dict[str, Any] = entries[row["partition"]]
            replicas = [str(node) for node in entry["replicas"]]
            followers = [node for node in replicas if node != row["leader"]]
            found.append({**row, "followers": followers, "learners": entry["learners"]})
        return json.dumps(found).encode()


def table_routes(source: TableSource, cluster: ClusterStatus, token: str | None = None) -> list[Route]:
    """Return the routes of tables, for a Starlette application; all paths begin with /api/v1/tables."""
    api = TableApi(source, cluster, token)
    return [Route("/api/v1/tables", api.tables), Route("/api/v1/tables/{name}", api.page)]


def _flags(request: Request, name: str) -> int:
    text = request.query_params.get("payload", "false")
    if text not in ("true", "false"):
        raise Wrong("parameter 'payload': give true or false")
    if text == "true" and name != "retained":
        raise Wrong("parameter 'payload' is for the table retained: payloads of queues are private to clients")
    return PAYLOAD if text == "true" else 0


def _after(request: Request) -> bytes:
    text = request.query_params.get("after", "")
    try:
        after = bytes.fromhex(text[:CURSOR_TEXT_MAX])
        if after:
            decode_cursor(after)
    except ValueError:
        raise Wrong("parameter 'after': use 'next' of the previous page") from None
    return after


def _retry(text: str) -> Response:
    return JSONResponse({"error": text}, status_code=503, headers={"retry-after": "1"})
