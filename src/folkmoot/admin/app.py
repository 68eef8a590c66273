"""The admin application of a node: health, metrics, cluster, streams, tables, transactions.

Owns the list of routes and their authorization. Reads existing figures and computes nothing large, because it shares a
thread with MQTT.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from folkmoot.admin.cluster import ClusterStatus, OwnStatus, cluster_routes
from folkmoot.admin.gauge import measure
from folkmoot.admin.guard import Guard
from folkmoot.admin.http import HttpServer
from folkmoot.admin.leased import leased
from folkmoot.admin.source import NodeHomes, NodeSource, answered
from folkmoot.admin.streams import stream_routes
from folkmoot.admin.table import table_routes
from folkmoot.admin.token import refusal
from folkmoot.admin.transactions import transaction_routes
from folkmoot.admin.wait import StreamWaits
from folkmoot.config.secret import read_word
from folkmoot.config.settings import Settings
from folkmoot.config.unit import Address
from folkmoot.metrics.exposition import CONTENT_TYPE, render
from folkmoot.runtime.origin import HostRules
from folkmoot.runtime.serve import Service, ServingNode
from folkmoot.runtime.tcp import listen
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus

__all__ = ["Admin", "application", "read_token"]


class Admin(Service):
    """The admin server of one node; does nothing if no address is configured."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._token: str | None = None
        self._metrics_token: str | None = None
        self._server: HttpServer | None = None
        self._waits: StreamWaits | None = None
        self._serving: ServingNode | None = None
        self._app: Guard | None = None

    def prepare(self, settings: Settings) -> None:
        """Read the token and bind the address."""
        admin = settings.admin
        if admin.address is not None:
            self._token, self._metrics_token = read_tokens(settings)
            self._socket = listen(admin.address.host, admin.address.port)

    def read_again(self, settings: Settings) -> Callable[[], None]:
        """Read the tokens again; the result puts them into force."""
        token, metrics_token = read_tokens(settings)

        def replace() -> None:
            if self._waits is not None and token != self._token:
                self._waits.release()
            self._token, self._metrics_token = token, metrics_token
            if self._serving is not None and self._waits is not None:
                self._app = self._guarded(self._serving, self._waits)

        return replace

    def _guarded(self, serving: ServingNode, waits: StreamWaits) -> Guard:
        """Return the application behind its guard. Without a token, the Host header is checked."""
        address = serving.settings.admin.address
        assert address is not None, "there is no application without an address"
        hosts = HostRules(address.host, serving.settings.admin.hosts) if self._token is None else None
        return Guard(application(serving, self._token, self._metrics_token, waits), hosts, recorder(serving))

    async def start(self, serving: ServingNode) -> str:
        """Serve; return "admin=HOST:PORT"."""
        address = serving.settings.admin.address
        if address is None or self._socket is None:
            return ""
        self._waits = StreamWaits(serving.node.streams, lambda log: serving.node.stream_end(log, serving.turns.begin()))
        serving.turns.after_written = self._waits.check
        serving.turns.answered = answered
        self._serving = serving
        self._app = self._guarded(serving, self._waits)

        async def dispatch(scope: Any, receive: Any, send: Any) -> None:
            """Pass a request to the application, which changes with the token."""
            assert self._app is not None, "requests come after the start"
            token = self._token
            scope["state"]["valid"] = lambda: token == self._token
            await self._app(scope, receive, send)

        self._server = HttpServer(
            dispatch,
            self._socket,
            lambda level, text, **fields: serving.say(level, "http", message=text, **fields),
            serving.settings.admin.connections_max,
            serving.settings.admin.connections_per_address_max,
        )
        await self._server.start()
        return f"admin={Address(address.host, self._socket.getsockname()[1])}"

    async def stop(self) -> None:
        """Answer readers that wait for records, then stop."""
        if self._waits is not None:
            self._waits.release()
        if self._server is not None:
            await self._server.stop()
        if self._socket is not None:
            self._socket.close()


def recorder(serving: ServingNode) -> Callable[..., None]:
    """Return what writes orders to the audit log, and refusals to the log and from there to the audit log."""

    def record(kind: str, **fields: object) -> None:
        if kind == "admin_refused":
            serving.say("warning", kind, **fields)
        else:
            serving.record(kind, **fields)

    return record


def read_token(path: Path) -> str:
    """Return the token in a file; raises FolkmootError if it cannot be sent in a header."""
    return read_word(path, "the token")


def read_tokens(settings: Settings) -> tuple[str | None, str | None]:
    """Return the token for everything and the one for metrics, each None without a file; raises as `read_token`."""
    admin = settings.admin
    found = [None if path is None else read_token(path) for path in (admin.token_file, admin.metrics_token_file)]
    return found[0], found[1]


class Pages:
    """Health and metrics of one node, and the status of its process."""

    def __init__(
        self, serving: ServingNode, cluster: ClusterStatus, token: str | None, metrics_token: str | None
    ) -> None:
        self._serving = serving
        self._cluster = cluster
        self._token = token
        self._metrics_token = metrics_token

    async def live(self, _request: Request) -> Response:
        """GET /health/live: the event loop runs."""
        return PlainTextResponse("live\n")

    async def ready(self, _request: Request) -> Response:
        """GET /health/ready: 200 if the node has its data and accepts clients, else 503 with the reason.

        A full disk of any node is reported in a second line.
        """
        why = "stopping" if self._serving.stopping else self._cluster.unready() or self._serving.turns.silence()
        if why:
            return PlainTextResponse(f"{why}\n", status_code=503)
        caution = self._cluster.caution()
        return PlainTextResponse(f"ready\n{caution}\n" if caution else "ready\n")

    async def metrics(self, request: Request) -> Response:
        """GET /metrics: all metrics as Prometheus text, for clients with one of both tokens."""
        refused = refusal(request, self._token, self._metrics_token)
        if refused is not None:
            return refused
        node = self._serving.node
        measure(self._cluster.status(), node.counters)
        return Response(render(node.counters, node.histograms), headers={"content-type": CONTENT_TYPE})

    def process(self) -> dict[str, object]:
        """Return the status of this process and its store."""
        serving, counters = self._serving, self._serving.node.counters
        return {
            "started_us": serving.started_us,
            "uptime_us": serving.turns.clock.read() - serving.started_us,
            "stopping": serving.stopping,
            "durability": serving.settings.node.durability,
            "storage": {"full": bool(counters.storage_full), "free_bytes": serving.disk.folder.free_bytes()},
            "memory": {
                "bytes": counters.memory_bytes,
                "budget_bytes": counters.memory_budget_bytes,
                "stage": counters.memory_stage,
            },
            "connections": counters.connections,
            "clients_connected": counters.clients_connected,
            "sessions_persistent": counters.sessions_persistent,
            "retained_messages": counters.retained_messages,
            "queue_messages": counters.queue_messages,
        }


def application(serving: ServingNode, token: str | None, metrics_token: str | None, waits: StreamWaits) -> Starlette:
    """Return the ASGI application; health checks need no token, so that probes need no secret."""
    node = serving.node
    cluster = OwnStatus(NodeStatus(picture_of(node)), serving.turns.begin)
    pages = Pages(serving, cluster, token, metrics_token)
    source = NodeSource(node, serving.turns.begin)
    return Starlette(
        routes=[
            Route("/health/live", pages.live),
            Route("/health/ready", pages.ready),
            Route("/metrics", pages.metrics),
            *cluster_routes(cluster, pages.process, token),
            *leased(stream_routes(lambda: node.streams, waits.wait, token, source), serving.turns.silence),
            *leased(table_routes(source, cluster, token), serving.turns.silence),
            *leased(
                transaction_routes(NodeHomes(node, serving.turns.begin), node.config.limits, token),
                serving.turns.silence,
            ),
        ]
    )
