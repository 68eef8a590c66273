"""Raft: a replicated log with one leader, for a handful of voters. It knows nothing of MQTT, partitions or the store.

`raft/raft` is the one entrance. The terms are those of Ongaro's dissertation (Consensus: Bridging Theory and Practice,
Stanford, 2014), whose sections are cited in parentheses.
"""

from __future__ import annotations

__all__: list[str] = []
