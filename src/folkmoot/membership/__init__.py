"""Who belongs to the cluster, and which node keeps which partition."""

from __future__ import annotations

__all__: list[str] = []
