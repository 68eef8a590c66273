"""The driver of a node on a real machine: event loop, sockets, RocksDB, threads. It makes no decision about MQTT."""

from __future__ import annotations

__all__: list[str] = []
