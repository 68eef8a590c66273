"""After this process stood still: what clients send waits until all other members have said that they count on it.

They may have gone on without it (`cluster.silence`, and sooner when another one has died), and clients have subscribed
there: by the routes of before, a publisher here would be told that it is safe, or wanted by nobody. Each member
is asked; its answer comes behind all that it has announced before. Who is out gets none, and hears it by the beats.
"""

from __future__ import annotations

from folkmoot.kernel.feature import WAKING
from folkmoot.kernel.pack import get_varint, varint
from folkmoot.session.connection import NEW, Connection
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import COUNTED, COUNTING
from folkmoot.turn.throttle import Throttle

__all__ = ["Held", "Waking"]


class Held:
    """Bytes of a client that wait, or the end of its connection; why: it ended, None = it did not."""

    def __init__(self, connection: Connection, data: bytes, why: str | None) -> None:
        self.connection = connection
        self.data = data
        self.why = why


class Waking:
    """Owns what waits, and who has not answered."""

    def __init__(self, fabric: Fabric, throttle: Throttle) -> None:
        self.fabric = fabric
        self.throttle = throttle
        self.unsure: dict[str, None] = {}  # nodes whose answer is missing
        self._round = 0
        self._held: list[Held] = []

    def begin(self) -> None:
        """This process has just gone on after it stood still."""
        fabric = self.fabric
        if fabric.idle or not fabric.others or not fabric.can(WAKING):
            return
        self._round += 1
        for node_id in fabric.others:
            self.unsure[node_id] = None
            fabric.send(node_id, COUNTING, varint(self._round))

    def asked(self, node_id: str, body: bytes) -> None:
        """A member asks whether it is one."""
        self.fabric.send(node_id, COUNTED, body)

    def answered(self, node_id: str, body: bytes) -> None:
        """A member says that this node is one."""
        if get_varint(body, 0)[0] == self._round:
            self.unsure.pop(node_id, None)

    def know(self) -> None:
        """A view was installed, or this node serves nobody: it knows."""
        self.unsure.clear()

    def hold(self, connection: Connection, data: bytes) -> None:
        """Keep what a client has sent; no more of it is read meanwhile."""
        self._held.append(Held(connection, data, None))
        self.throttle.pause_reading(connection)

    def hold_end(self, connection: Connection, why: str) -> bool:
        """Keep that a connection has ended, if what it has sent before waits; else return False."""
        for held in self._held:
            if held.connection is connection:
                self._held.append(Held(connection, b"", why))
                return True
        return False

    def take(self) -> list[Held]:
        """Return what waits no longer, in order; its connections are read again."""
        if self.unsure or not self._held:
            return []
        held = self._held
        self._held = []
        for one in held:
            self.throttle.resume_reading(one.connection)
        # A CONNECT whose client has gone meanwhile would end the connection that it has made since.
        ended = {one.connection.id: True for one in held if one.why is not None and one.connection.state == NEW}
        return [one for one in held if one.why is not None or one.connection.id not in ended]
