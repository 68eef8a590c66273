"""Clients of Folkmoot: for streams, tables and the admin API, and the load generator. They import no broker code."""

from __future__ import annotations

__all__: list[str] = []
