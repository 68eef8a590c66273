"""Clients with wills and with sessions that expire, and what must become of both (A7).

A *life* is one connection of a client, from its CONNECT on. What its end owes follows from how it ended, from its will
delay and session expiry interval, and from the next connections of the client. Where the client cannot know that, the
outcome is MAYBE: the will may come then, once.
"""

from __future__ import annotations

import random

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5, Connect, Disconnect, Publish, Will
from tests.harness.peer import EVER, properties
from tests.harness.simulated_cluster import SimulatedCluster
from tests.simulated_cluster.drawn import ASKED, DrawnClient, Ledger, TimedPeer

__all__ = ["MAYBE", "NO", "YES", "Life", "WillClient", "WillLedger"]

NO, YES, MAYBE = "no", "yes", "maybe"
GOODBYE, WITH_WILL = 0, 4  # reasons of DISCONNECT
FORGOTTEN_US = 5 * SECOND  # a DISCONNECT has no answer: a node that fails so soon after it may take it back
SLACK_US = 2 * SECOND  # how long links that hold what they carry may keep the end of a connection from a leader
NEVER_US = 1 << 62


class Life:
    """One connection of a client; `will` is None without one. Moments of 0 have not come."""

    def __init__(self, number: int, client: WillClient, peer: TimedPeer, will: Will | None) -> None:
        self.number = number
        self.client = client
        self.peer = peer
        self.site = client.site
        self.will = will
        self.delay_s = 0
        self.expiry_s = client.expiry_s
        self.clean = client.anew
        self.asked_us = client.cluster.now
        self.accepted_us = 0
        self.present = False
        self.refused = False
        self.goodbye: int | None = None  # the reason of its DISCONNECT
        self.goodbye_us = 0
        self.is_heard = True  # the server has certainly read its DISCONNECT

    def __repr__(self) -> str:
        what = "" if self.will is None else f" will qos={self.will.qos} retain={self.will.retain} {self.delay_s}s"
        times = [clock(us) for us in (self.asked_us, self.accepted_us, self.goodbye_us, self.peer.over_us)]
        how = f"{'clean' if self.clean else ''} expiry={self.expiry_s} {'refused' if self.refused else ''}"
        return f"Life({self.number} {self.client.name}@{self.site}{what} {how} {self.goodbye} {' '.join(times)})"

    @property
    def wait_us(self) -> int:
        """How long its will waits when it has ended: the end of the session brings it at once [MQTT-3.1.3-9]."""
        return min(self.delay_s, self.expiry_s) * SECOND

    @property
    def ended_us(self) -> int:
        """When it has certainly ended, as far as the client knows; 0: it is open."""
        return self.goodbye_us or self.peer.over_us


class WillLedger(Ledger):
    """The lives of all clients, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: list[Life] = []
        self.changed_us = 0  # when a node last had another configuration: delays begin again then

    def of(self, client: DrawnClient) -> list[Life]:
        """Return the lives of a client."""
        return [life for life in self.lives if life.client is client]

    def end_low_us(self, life: Life) -> int:
        """The earliest moment at which its end may have counted: the others may have given up its node before."""
        troubles = [us for site, us in self.troubles if site == life.site and us >= life.asked_us]
        return min([*troubles, life.ended_us or NEVER_US])

    def is_goodbye_sure(self, life: Life) -> bool:
        """Whether its DISCONNECT counts: the server has read it, and no node failed soon after."""
        if not life.is_heard or self.end_low_us(life) < life.goodbye_us:
            return False
        return not any(life.goodbye_us - SECOND <= us <= life.goodbye_us + FORGOTTEN_US for _, us in self.troubles)

    def over_by_us(self, life: Life, wait_us: int) -> int:
        """When something that waits for so long since the end of a life has come; NEVER_US: that is not known."""
        if not life.ended_us or self.changed_us >= life.ended_us:
            return NEVER_US
        return max(life.ended_us, life.peer.over_us) + wait_us + SLACK_US

    def outcome(self, life: Life) -> str:
        """Whether the will of a life must have come in the end."""
        if life.refused:
            return NO
        if not life.accepted_us:
            return MAYBE
        if life.goodbye == GOODBYE:
            if self.is_goodbye_sure(life):
                return NO
            return MAYBE
        if not life.ended_us:
            return NO
        if life.goodbye == WITH_WILL and life.delay_s and not self.is_goodbye_sure(life):
            return MAYBE  # the session may have kept its interval
        return self._after_delay(life) if life.wait_us else YES

    def _after_delay(self, life: Life) -> str:
        """Only the return of the client to its session within the delay cancels the will."""
        due_us = self.end_low_us(life) + life.wait_us
        for follower in self.of(life.client):
            if follower.number <= life.number or follower.refused:
                continue
            if not follower.accepted_us:
                return MAYBE
            if not follower.present:
                return YES
            if follower.accepted_us < due_us:
                return NO
            return YES if follower.asked_us > self.over_by_us(life, life.wait_us) else MAYBE
        return YES

    def look_at_session(self, life: Life) -> None:
        """Check whether the client must have found its session, or must not."""
        if life.clean:
            assert not life.present, f"[MQTT-3.2.2-2] {life}"
            return
        former: Life | None = None
        for other in self.of(life.client):
            if other.number >= life.number or other.refused:
                continue
            if not other.accepted_us:
                return  # nobody knows what became of that CONNECT
            former = other
        if former is not None and former.goodbye is not None and not self.is_goodbye_sure(former):
            return  # the interval may be that of its DISCONNECT
        if former is None or not former.expiry_s:
            assert not life.present, f"{life} has the session of {former}"
            return
        never = former.expiry_s == EVER
        if never or life.accepted_us < self.end_low_us(former) + former.expiry_s * SECOND:
            assert life.present, f"the session of {former} has ended for {life}"
        elif life.asked_us > self.over_by_us(former, former.expiry_s * SECOND):
            assert not life.present, f"the session of {former} has not ended for {life}"


class WillClient(DrawnClient):
    """A client of which each connection may have a will and another session expiry interval."""

    ledger: WillLedger

    def __init__(
        self, cluster: SimulatedCluster, ledger: WillLedger, name: str, rng: random.Random, *, version: int = V5
    ) -> None:
        super().__init__(cluster, ledger, name, version=version)
        self.rng = rng
        self.expiry_s = 0
        self.expiries = (0, 1, 2, 3, 3, EVER, EVER) if version == V5 else (0, EVER, EVER)
        self.is_lasting = False  # its session never expires
        self.chance_of_will = 0.8
        self.life: Life | None = None
        self.wills: dict[int, list[tuple[int, bool, bool]]] = {}  # by life: when they came, DUP, retained

    def keep(self) -> None:
        """From now on its session lasts, and it has no will."""
        self.is_lasting = self.persistent = True
        self.chance_of_will = 0

    def connect(self, site: str, clean: bool = False) -> None:
        """Open a connection with another will and another interval."""
        self._give_up()
        self.expiry_s = EVER if self.is_lasting else self.rng.choice(self.expiries)
        self.anew = self.anew or clean
        if self.version != V5:  # what is clean ends with the connection
            self.anew = self.anew or not self.expiry_s
            self.expiry_s = 0 if self.anew else EVER
        self.persistent = self.expiry_s > 0
        if self.anew:
            self._end_session()
        self._open(site)

    def _connect_packet(self, peer: TimedPeer) -> Connect:
        rng = self.rng
        will = None
        number = len(self.ledger.lives) + 1
        if rng.random() < self.chance_of_will:
            topic = rng.choice((f"w/{self.name}", "w/all"))
            will = Will(topic.encode(), b"w%d" % number, rng.choice((0, 1, 1, 2, 2)), topic != "w/all")
        self.life = Life(number, self, peer, will)
        self.ledger.lives.append(self.life)
        made = None
        if self.version == V5:
            made = properties(session_expiry=self.expiry_s or None, receive_max=self.window or None)
            if will is not None:
                self.life.delay_s = rng.choice((0, 0, 1, 2, 3))
                will.properties = properties(will_delay=self.life.delay_s or None)
        return Connect(self.version, self.name, self.anew, 0, None, None, will, made)

    def disconnect(self, code: int = GOODBYE, expiry_s: int | None = None) -> None:
        """Send DISCONNECT, perhaps with another session expiry interval."""
        assert self.peer is not None
        assert self.life is not None
        self.life.goodbye = code
        self.life.goodbye_us = self.cluster.now
        self.life.is_heard = self.peer.connection is not None and not self.peer.paused
        if expiry_s is not None:
            self.life.expiry_s = self.expiry_s = expiry_s
            self.persistent = expiry_s > 0
        made = None if expiry_s is None else properties(session_expiry=expiry_s)
        self.peer.send(Disconnect(code, made))
        self.left.append((self.peer, self.site))
        self._forget()

    def _accepted(self, present: bool) -> None:
        assert self.life is not None
        self.life.accepted_us = self.came_us
        self.life.present = present
        super()._accepted(present)

    def _look_at_session(self, present: bool) -> None:
        assert self.life is not None
        self.ledger.look_at_session(self.life)

    def _refused(self, code: int) -> None:
        assert self.life is not None
        self.life.refused = True
        self.persistent = self.has_session or self.is_lasting  # as before
        super()._refused(code)

    def _forget(self) -> None:
        if self.state == ASKED and self.life is not None and not self.life.refused and not self.is_lasting:
            self.anew = True  # it may have another session, and not know it
        super()._forget()

    def _arrives(self, packet: Publish) -> None:
        if not packet.payload.startswith(b"w"):
            super()._arrives(packet)
            return
        number = int(packet.payload[1:])
        life = self.ledger.lives[number - 1]
        will = life.will
        assert will is not None, f"A2: {self} gets {packet} of {life}"
        assert packet.topic == will.topic, f"A2: {self} gets {packet} of {life}"
        if not self._is_new(packet, -number):
            return
        self.wills.setdefault(number, []).append((self.came_us, packet.dup, packet.retain))


def clock(us: int) -> str:
    """Return a moment as it is in the trail of a run."""
    return f"{(us - 1_600_000_000 * SECOND) / 1000:.1f}" if us else "-"
