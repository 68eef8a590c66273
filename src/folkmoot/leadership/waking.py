"""After this process stood still: packets of clients wait until all other members confirm that it is one of them.

They may have continued without it when its lease was over, and clients have subscribed there: by the old routes, a
publisher here would get an acknowledgement for a message that those subscribers miss. Each member is asked; its answer
comes behind all that it has announced before. A node that is away gets no answer, and learns it from the configuration.
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
    """Owns what waits, and which members have not answered."""

    def __init__(self, fabric: Fabric, throttle: Throttle) -> None:
        self.fabric = fabric
        self.throttle = throttle
        self.unsure: dict[str, None] = {}  # nodes whose answer is missing
        self._round = 0
        self._held: list[Held] = []

    def begin(self) -> None:
        """This process continues after it stood still: ask all members."""
        fabric = self.fabric
        if fabric.idle or not fabric.others or not fabric.can(WAKING):
            return
        self._round += 1
        for node_id in fabric.others:
            self.unsure[node_id] = None
            fabric.send(node_id, COUNTING, varint(self._round))

    def asked(self, node_id: str, body: bytes) -> None:
        """Answer a node that asks whether it is a member here."""
        self.fabric.send(node_id, COUNTED, body)

    def answered(self, node_id: str, body: bytes) -> None:
        """Take a member's answer that this node is one."""
        if get_varint(body, 0)[0] == self._round:
            self.unsure.pop(node_id, None)

    def know(self) -> None:
        """Roles were installed, or this node serves no client: no answer is needed."""
        self.unsure.clear()

    def hold(self, connection: Connection, data: bytes) -> None:
        """Keep what a client has sent; its socket is not read meanwhile."""
        self._held.append(Held(connection, data, None))
        self.throttle.pause_reading(connection)

    def hold_end(self, connection: Connection, why: str) -> bool:
        """Keep the end of a connection, if packets of it wait; otherwise return False."""
        for held in self._held:
            if held.connection is connection:
                self._held.append(Held(connection, b"", why))
                return True
        return False

    def take(self) -> list[Held]:
        """Return what need not wait any longer, in order; its connections are read again."""
        if self.unsure or not self._held:
            return []
        held = self._held
        self._held = []
        for one in held:
            self.throttle.resume_reading(one.connection)
        # The CONNECT of a connection that has ended meanwhile would take over the client's next connection.
        ended = {one.connection.id: True for one in held if one.why is not None and one.connection.state == NEW}
        return [one for one in held if one.why is not None or one.connection.id not in ended]
