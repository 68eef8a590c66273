"""The admin API for operators: status, partitions, locations, safe-to-stop, and commands about nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

from folkmoot.client.nodes import Answer, Nodes, split_urls
from folkmoot.client.problem import (
    BadAnswer,
    BadQuestion,
    NoSuchNode,
    NotAuthorised,
    NotPossible,
    StreamProblem,
)

__all__ = ["AdminClient"]

# A node that hangs accepts connections but does not answer: then another one is asked.
TIMEOUT_S: Final = 3.0
PATIENCE_S: Final = 2.0
SERVING: Final = ("member", "alone")


class AdminClient:
    """Sends requests to one of several equal nodes.

    `urls`: admin addresses, as a list or separated by commas; `token`: the bearer token. The first node that answers
    and is a member of the cluster is used. Nodes that are dead, hang, stop or are no members are skipped. Unreachable
    is raised when all have failed for `patience_s`. `on_pass(url, why)` is called for nodes that refer to another one.
    Raises ValueError for an invalid address.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        token: str | None = None,
        patience_s: float = PATIENCE_S,
        timeout_s: float = TIMEOUT_S,
        on_pass: Callable[[str, str], None] | None = None,
    ) -> None:
        found = split_urls(urls if isinstance(urls, str) else ",".join(urls))
        self._token = token
        self.nodes = Nodes(found, token, patience_s, timeout_s, on_pass=on_pass)

    def status(self) -> dict[str, Any]:
        """Return the status as seen by the node that answers: a member, unless no address leads to one."""
        first = _checked(self.nodes.get("/api/v1/status", {}))
        found = first.object()
        if found.get("state") in SERVING or len(self.nodes.urls) == 1:
            return found
        self.nodes.passed(first.url, f"is not up in the cluster ({found.get('state')})")
        for url in self.nodes.urls:
            other = None if url == first.url else self._once(url, "status", {})
            if other is not None and other.get("state") in SERVING:
                self.nodes.prefer(url)
                return other
        return found

    def partitions(self) -> list[dict[str, Any]]:
        """Return one entry for each partition."""
        return self._list("partitions")

    def heals(self) -> list[dict[str, Any]]:
        """Return the summaries of heals that the node knows, the newest last."""
        return self._list("heals")

    def where_client(self, client_id: str) -> dict[str, Any]:
        """Return where the session of a client is; raises BadQuestion for an invalid client id.

        Only the leader of its partition knows the node that it is connected to, so the other addresses are asked, too.
        """
        fields = {"client": client_id}
        found = self._object("where", fields)
        for url in self.nodes.urls if found.get("owner") is None and len(self.nodes.urls) > 1 else ():
            answer = self._once(url, "where", fields)
            if answer is not None and answer.get("owner") is not None:
                return answer
        return found

    def where_topic(self, topic: str) -> dict[str, Any]:
        """Return where the retained message of a topic is; raises BadQuestion for an invalid topic."""
        return self._object("where", {"topic": topic})

    def safe_to_stop(self, node_id: str) -> dict[str, Any]:
        """Return whether a node can be stopped safely, why, and which partitions prevent it; raises NoSuchNode."""
        return self._object(f"safe-to-stop/{quote(node_id, safe='')}")

    def evict(self, node_id: str, force: bool = False) -> None:
        """Put a node out until it is started again, with `force` at any cost; raises NoSuchNode or NotPossible."""
        self._order(node_id, "evict", force)

    def forget(self, node_id: str, force: bool = False) -> None:
        """Forget an absent node for good, with `force` regardless of what is lost; raises NoSuchNode or NotPossible."""
        self._order(node_id, "forget", force)

    def leave(self, node_id: str) -> None:
        """Make a node hand over its partitions and leave for good; raises NoSuchNode or NotPossible."""
        self._order(node_id, "leave", False)

    def stay(self, node_id: str) -> None:
        """Take the leave of a node back; raises NoSuchNode or NotPossible."""
        self._order(node_id, "stay", False)

    def close(self) -> None:
        """Close all connections."""
        self.nodes.close()

    def _once(self, url: str, path: str, fields: dict[str, str]) -> dict[str, Any] | None:
        """Return the answer of one node, or None."""
        other = Nodes([url], self._token, 0.0, self.nodes.timeout_s)
        try:
            return _checked(other.get(f"/api/v1/{path}", fields)).object()
        except StreamProblem:
            return None
        finally:
            other.close()

    def _order(self, node_id: str, order: str, force: bool) -> None:
        fields = {"force": "true"} if force else {}
        _checked(self.nodes.post(f"/api/v1/nodes/{quote(node_id, safe='')}/{order}", fields))

    def _object(self, path: str, fields: dict[str, str] | None = None) -> dict[str, Any]:
        return _checked(self.nodes.get(f"/api/v1/{path}", fields or {})).object()

    def _list(self, path: str) -> list[dict[str, Any]]:
        answer = _checked(self.nodes.get(f"/api/v1/{path}", {}))
        try:
            found = json.loads(answer.data)
        except ValueError:
            found = None
        if not isinstance(found, list):
            raise BadAnswer(f"{answer.url} did not answer with a list: is this the admin address of a Folkmoot node?")
        return found


def _checked(answer: Answer) -> Answer:
    """Return a successful answer; raise the exception for any other."""
    if answer.status in (200, 202):
        return answer
    if answer.status in (401, 403):
        raise NotAuthorised(
            f"{answer.url} refuses the token ({answer.status}): give the token that the node was configured with "
            "(--token, or the variable FOLKMOOT_TOKEN)"
        )
    why = answer.object().get("error", "no reason given") if answer.data.startswith(b"{") else ""
    if answer.status == 404 and why:
        raise NoSuchNode(str(why))
    if answer.status == 409:
        raise NotPossible(str(why))
    if answer.status == 400:
        raise BadQuestion(str(why))
    raise BadAnswer(
        f"{answer.url} answered {answer.status}: is this the admin address of a Folkmoot node of this version?"
    )
