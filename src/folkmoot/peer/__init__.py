"""Other nodes: frames, links, handshakes, and the kinds of messages between nodes."""

from __future__ import annotations

__all__: list[str] = []
