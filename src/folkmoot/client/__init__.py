"""Clients of Folkmoot: of streams and the admin API, and the load generator. They never see the broker's parts."""

from __future__ import annotations

__all__: list[str] = []
