"""Settings that must be equal on all nodes: what a node sends of its own in the handshake, and which nodes differ.

Owns which settings these are, and their form as text. No connection is refused because of them: while an operator
changes one node after another, nodes differ for minutes. A node of an older version sends fewer of them; a setting that
it does not send does not differ.
"""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.peer.config import ClusterConfig

__all__ = ["Disagreement", "disagreements", "settings_of"]


class Disagreement:
    """A setting, by its name in the configuration, as this node has it and as another has it."""

    def __init__(self, setting: str, here: str, there: str) -> None:
        self.setting = setting
        self.here = here
        self.there = there

    def fields(self, node_id: str) -> dict[str, object]:
        """Return it with the other node's id, for the log and the status."""
        return {"node": node_id, "setting": self.setting, "here": self.here, "there": self.there}

    def __repr__(self) -> str:
        return f"Disagreement({self.setting!r} here={self.here!r} there={self.there!r})"


def settings_of(config: ClusterConfig) -> dict[str, str]:
    """Return the settings of this node that all others should have too, each of at most 200 characters."""
    return {
        "cluster.replicas": str(config.replicas),
        "cluster.min_in_sync": str(config.min_in_sync),
        "cluster.split_policy": config.split_policy,
        "cluster.silence": _time(config.silence_us),
        "cluster.clock_offset_max": _time(config.clock_offset_max_us),
        "streams": config.streams,
    }


def disagreements(mine: dict[str, str], theirs: dict[str, str]) -> list[Disagreement]:
    """Return the settings in which two nodes differ; only those that both have sent."""
    found: list[Disagreement] = []
    for setting, here in mine.items():
        there = theirs.get(setting, here)
        if there != here:
            found.append(Disagreement(setting, here, there))
    return found


def _time(time_us: int) -> str:
    return f"{time_us}us" if time_us % MILLISECOND else f"{time_us // MILLISECOND}ms"
