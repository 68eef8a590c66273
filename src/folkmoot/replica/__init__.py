"""The replicas of partitions at one node: changes, commits, takeover, copies, digests."""

from __future__ import annotations

__all__: list[str] = []
