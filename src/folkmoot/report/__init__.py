"""What a node tells those who ask: pages of tables, records of streams, the state of transactions."""

from __future__ import annotations

__all__: list[str] = []
