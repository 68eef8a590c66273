"""One whole node as a deterministic core: bytes and times go in, effects come out."""

from __future__ import annotations

from folkmoot.node.config import NodeConfig
from folkmoot.node.effect import Authenticate, Effects
from folkmoot.node.node import Node
from folkmoot.session.connection import Connection, PeerInfo

__all__ = ["Authenticate", "Connection", "Effects", "Node", "NodeConfig", "PeerInfo"]
