"""Other clustered brokers with MQTT, and Folkmoot beside them in the same run: the section `peers` of the benchmarks.

Owns the entry of the section. A module for each broker says how it is obtained and started (`benchmarks.peers.peer`).
"""

from __future__ import annotations

from benchmarks.peers.section import run, table

__all__ = ["run", "table"]
