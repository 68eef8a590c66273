"""The HTTP routes of the cluster: status, partitions, locations, safe-to-stop, and commands about nodes.

Owns the paths and the validation of parameters. `ClusterStatus` has the answers; `OwnStatus` gets them from a node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from folkmoot.admin.answer import failure
from folkmoot.admin.token import refusal
from folkmoot.status.status import NodeStatus
from folkmoot.topics.name import check_topic

__all__ = ["ClusterStatus", "OwnStatus", "cluster_routes"]

JSON: Final = "application/json"
TOPIC_LEVELS_MAX: Final = 32_768
CLIENT_ID_BYTES_MAX: Final = 65_535


class ClusterStatus(ABC):
    """Answers about a cluster as objects for JSON, and the commands of operators."""

    @abstractmethod
    def status(self) -> dict[str, object]:
        """Return the status of the cluster."""

    @abstractmethod
    def partitions(self) -> list[dict[str, object]]:
        """Return one entry for each partition."""

    @abstractmethod
    def where_client(self, client_id: str) -> dict[str, object]:
        """Return where a client's session is."""

    @abstractmethod
    def where_topic(self, topic: str) -> dict[str, object]:
        """Return where a topic's retained message is."""

    @abstractmethod
    def safe_to_stop(self, node_id: str) -> dict[str, object] | None:
        """Return whether a node can be stopped safely, and which partitions prevent it; None for an unknown node."""

    @abstractmethod
    def heals(self) -> list[dict[str, object]]:
        """Return the summaries of heals, the newest last."""

    @abstractmethod
    def known(self, node_id: str) -> bool:
        """Whether there is such a node."""

    @abstractmethod
    def outside(self) -> str:
        """Return why this node cannot answer for the cluster, if it is not a member; else ""."""

    @abstractmethod
    def evict(self, node_id: str, force: bool = False) -> str:
        """Put a node out until it is started again, with `force` in any case; return why not, or ""."""

    @abstractmethod
    def forget(self, node_id: str, force: bool = False) -> str:
        """Forget a node for good, with `force` regardless of what is lost; return why not, or ""."""

    @abstractmethod
    def own_id(self) -> str:
        """Return the id of this node."""

    @abstractmethod
    def leave(self, node_id: str) -> str:
        """Make a node hand over its partitions and leave; return why not, or ""."""

    def stay(self, node_id: str) -> str:
        """Take the leave of a node back; return why not, or ""."""
        return f"{node_id} was not told to leave"

    @abstractmethod
    def unready(self) -> str:
        """Return why this node should get no clients now, or ""."""

    def caution(self) -> str:
        """Return what is wrong although this node serves, or ""."""
        return ""


class OwnStatus(ClusterStatus):
    """The answers of the node in this process; `begin` begins a turn of its loop and returns the time."""

    def __init__(self, node: NodeStatus, begin: Callable[[], int]) -> None:
        self._node = node
        self._begin = begin

    def status(self) -> dict[str, object]:
        """Return the status of the cluster."""
        return self._node.status()

    def partitions(self) -> list[dict[str, object]]:
        """Return one entry for each partition."""
        return self._node.partitions()

    def where_client(self, client_id: str) -> dict[str, object]:
        """Return where a client's session is."""
        return self._node.where_client(client_id)

    def where_topic(self, topic: str) -> dict[str, object]:
        """Return where a topic's retained message is."""
        return self._node.where_topic(topic)

    def safe_to_stop(self, node_id: str) -> dict[str, object] | None:
        """Return whether a node can be stopped; None for an unknown node."""
        return self._node.safe_to_stop(node_id)

    def heals(self) -> list[dict[str, object]]:
        """Return the summaries of heals."""
        return self._node.heals()

    def known(self, node_id: str) -> bool:
        """Whether there is such a node."""
        return self._node.known(node_id)

    def outside(self) -> str:
        """Return why this node is not the one to ask for orders."""
        return self._node.outside()

    def evict(self, node_id: str, force: bool = False) -> str:
        """Put a node out, in a turn of the loop."""
        return self._node.evict(node_id, self._begin(), force)

    def forget(self, node_id: str, force: bool = False) -> str:
        """Expect a node no more, in a turn of the loop."""
        return self._node.forget(node_id, self._begin(), force)

    def own_id(self) -> str:
        """Return the id of this node."""
        return self._node.picture.node_id()

    def leave(self, node_id: str) -> str:
        """Have a node leave, in a turn of the loop."""
        return self._node.leave(node_id, self._begin())

    def stay(self, node_id: str) -> str:
        """Take the leave of a node back, in a turn of the loop."""
        return self._node.stay(node_id, self._begin())

    def unready(self) -> str:
        """Return why this node should get no clients now, or ""."""
        return self._node.unready()

    def caution(self) -> str:
        """Return what is wrong although this node serves, or ""."""
        return self._node.caution()


class ClusterApi:
    """The endpoints; `more` adds the status of the process; `token` None disables authorization."""

    def __init__(self, cluster: ClusterStatus, more: Callable[[], Mapping[str, object]], token: str | None) -> None:
        self._cluster = cluster
        self._more = more
        self._token = token

    def _refusal(self, request: Request) -> Response | None:
        """Return the refusal of a request, or None.

        A web page can make a browser send a form to this server without CORS, but not with this content type.
        """
        found = refusal(request, self._token)
        if found is None and request.method == "POST":
            given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if given != JSON:
                return failure(415, f"a command needs the header 'content-type: {JSON}'")
        return found

    async def status(self, request: Request) -> Response:
        """GET /api/v1/status."""
        return self._refusal(request) or JSONResponse({**self._cluster.status(), **self._more()})

    async def partitions(self, request: Request) -> Response:
        """GET /api/v1/partitions."""
        return self._refusal(request) or self._outsider() or JSONResponse(self._cluster.partitions())

    async def heals(self, request: Request) -> Response:
        """GET /api/v1/heals."""
        return self._refusal(request) or JSONResponse(self._cluster.heals())

    async def where(self, request: Request) -> Response:
        """GET /api/v1/where?client=ID or ?topic=TOPIC."""
        return self._refusal(request) or self._outsider() or self._where(request)

    def _where(self, request: Request) -> Response:
        if not _is_utf8(request):
            return failure(400, "the query is not UTF-8")  # otherwise its replacement characters would be looked up
        client, topic = request.query_params.get("client"), request.query_params.get("topic")
        if (client is None) == (topic is None):
            return failure(400, "give one of the parameters 'client' and 'topic'")
        if topic is not None:
            fault = check_topic(topic.encode(), TOPIC_LEVELS_MAX)
            return (
                failure(400, f"parameter 'topic': {fault}") if fault else JSONResponse(self._cluster.where_topic(topic))
            )
        if not client or len(client.encode()) > CLIENT_ID_BYTES_MAX:
            return failure(400, f"parameter 'client': a client id has 1 to {CLIENT_ID_BYTES_MAX} bytes")
        return JSONResponse(self._cluster.where_client(client))

    async def safe_to_stop(self, request: Request) -> Response:
        """GET /api/v1/safe-to-stop/NODE."""
        return self._refusal(request) or self._outsider() or self._safe_to_stop(request)

    def _safe_to_stop(self, request: Request) -> Response:
        found = self._cluster.safe_to_stop(_node(request))
        return self._no_node(request) if found is None else JSONResponse(found)

    async def evict(self, request: Request) -> Response:
        """POST /api/v1/nodes/NODE/evict, with ?force=true regardless of the consequences."""
        return self._refusal(request) or self._forcible(request, self._cluster.evict)

    async def forget(self, request: Request) -> Response:
        """POST /api/v1/nodes/NODE/forget, with ?force=true regardless of what is lost."""
        # By force also at a node that is not up: it may be what is left of the cluster.
        return self._refusal(request) or self._forcible(request, self._cluster.forget, True)

    async def leave(self, request: Request) -> Response:
        """POST /api/v1/nodes/NODE/leave, or /api/v1/leave for the node that gets the request."""
        return self._refusal(request) or self._order(request, self._cluster.leave)

    async def stay(self, request: Request) -> Response:
        """POST /api/v1/nodes/NODE/stay: the leave of the node is taken back."""
        return self._refusal(request) or self._order(request, self._cluster.stay)

    def _forcible(self, request: Request, order: Callable[[str, bool], str], outside: bool = False) -> Response:
        force = request.query_params.get("force", "false")
        if force not in ("true", "false"):
            return failure(400, "parameter 'force': give true or false")
        return self._order(request, lambda node_id: order(node_id, force == "true"), outside and force == "true")

    def _order(self, request: Request, order: Callable[[str], str], outside: bool = False) -> Response:
        node_id = _node(request) if "node" in request.path_params else self._cluster.own_id()
        outsider = self._outsider()
        if outsider is not None and not outside:
            return outsider
        if not self._cluster.known(node_id):
            return self._no_node(request)
        return _outcome(order(node_id), {"node": node_id})

    def _outsider(self) -> Response | None:
        """Return 503 if this node is not a member: its knowledge of other nodes is outdated, so ask another one."""
        why = self._cluster.outside()
        return failure(503, why) if why else None

    def _no_node(self, request: Request) -> Response:
        nodes: Any = self._cluster.status()["nodes"]
        names = ", ".join(str(node["id"]) for node in nodes)
        return failure(404, f"there is no node {_node(request)[:64]!r}; there are: {names or 'none'}")


def cluster_routes(
    cluster: ClusterStatus, more: Callable[[], Mapping[str, object]], token: str | None = None
) -> list[Route]:
    """Return the routes of a cluster."""
    api = ClusterApi(cluster, more, token)
    return [
        Route("/api/v1/status", api.status),
        Route("/api/v1/partitions", api.partitions),
        Route("/api/v1/where", api.where),
        Route("/api/v1/heals", api.heals),
        Route("/api/v1/safe-to-stop/{node:path}", api.safe_to_stop),
        Route("/api/v1/nodes/{node:path}/evict", api.evict, methods=["POST"]),
        Route("/api/v1/nodes/{node:path}/forget", api.forget, methods=["POST"]),
        Route("/api/v1/nodes/{node:path}/leave", api.leave, methods=["POST"]),
        Route("/api/v1/nodes/{node:path}/stay", api.stay, methods=["POST"]),
        Route("/api/v1/leave", api.leave, methods=["POST"]),
    ]


def _node(request: Request) -> str:
    return str(request.path_params["node"])


def _is_utf8(request: Request) -> bool:
    """Return whether the parameters are valid UTF-8: Starlette replaces invalid bytes by U+FFFD."""
    try:
        unquote_to_bytes(request.scope["query_string"]).decode()
    except UnicodeDecodeError:
        return False
    return True


def _outcome(why_not: str, fields: dict[str, str]) -> Response:
    """Return the answer to a command: 202, because the cluster agrees on it afterwards, or 409 with the reason."""
    return failure(409, why_not) if why_not else JSONResponse({"accepted": True, **fields}, 202)
