"""The sessions of a node, by client id and by partition: giving up a partition costs by its own sessions only.

Persistent ones that this node leads, transient ones whose connection is here, and entries for those at other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

from folkmoot.session.session import Session

__all__ = ["Sessions"]


class Sessions:
    """One session per client id."""

    def __init__(self, partitions: int) -> None:
        self._by_id: dict[str, Session] = {}
        self._by_partition: list[dict[str, Session]] = [{} for _ in range(partitions)]

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, client_id: str) -> bool:
        return client_id in self._by_id

    def __getitem__(self, client_id: str) -> Session:
        return self._by_id[client_id]

    def get(self, client_id: str) -> Session | None:
        """Return the session of a client id, or None."""
        return self._by_id.get(client_id)

    def put(self, session: Session) -> None:
        """Add a session; it replaces one with the same client id."""
        self._by_id[session.client_id] = session
        self._by_partition[session.partition][session.client_id] = session

    def remove(self, session: Session) -> None:
        """Remove a session, unless another one has its client id by now."""
        if self._by_id.get(session.client_id) is session:
            del self._by_id[session.client_id]
            del self._by_partition[session.partition][session.client_id]

    def values(self) -> Iterable[Session]:
        """Return all sessions, in the order in which they came."""
        return self._by_id.values()

    def of_partition(self, partition: int) -> list[Session]:
        """Return the sessions of a partition, in the order in which they came."""
        return list(self._by_partition[partition].values())
