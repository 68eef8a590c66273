"""A6: one live connection per client id, and a correct "session present": a session exists while it must.

MQTT 5 sections 3.1.2.4, 3.1.2.11.2, 3.2.2.1.1.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.sim.fact import Life, SessionRecord
from folkmoot.sim.ledger import Ledger
from folkmoot.sim.network import Link
from folkmoot.sim.profile import NEVER_EXPIRES_S

__all__ = ["SessionChecker"]


class SessionChecker:
    """Judges every accepted CONNECT."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.world = ledger.world
        self.judge = ledger.judge

    def accepted(self, life: Life, present: bool, expiry_s: int) -> SessionRecord:
        """Return the session of this connection: the known one, or a new one."""
        now = self.world.now
        life.accepted_us = now
        life.resumed = present
        record = self.ledger.current.get(life.client_id)
        self._fence(life.link, life.client_id)
        before = record
        torn = record is not None and self.judge.began_elsewhere(record, life)
        if present:
            if life.clean:
                self.world.violate("session", f"{life}: session present after clean start [MQTT-3.1.2-4]")
            since_us = 0 if record is None else record.links[-1].opened_us
            if record is not None and not record.ended and not torn and self._must_be_over(record, life):
                if not self._may_have_begun(life, since_us):
                    self.world.violate("session", f"{life}: {record} had expired, and is present")
            if record is None and not self._may_have_begun(life, since_us):
                self.world.violate("session", f"{life}: session present, and there never was one")
            if record is None or record.ended or (not record.persistent and record.links[-1].cut_us < NEVER):
                record = self.ledger.begin(life, expiry_s)  # from a CONNECT that was never answered
            else:
                self.world.mark("session resumed")
        else:
            if record is not None and not record.ended and not life.clean and self._must_live(record, life):
                self.world.violate("A1", f"{life}: {record} is lost, its expiry is {record.expiry_low_s} s")
            record = self.ledger.begin(life, expiry_s)
        if before is not None and record is not before and (torn or self.judge.without_copy(before, life)):
            self._inherit(before, record)
        self._attach(record, life, expiry_s)
        return record

    def _inherit(self, before: SessionRecord, record: SessionRecord) -> None:
        """Other nodes may have the earlier session: a heal may restore its subscriptions and waiting messages."""
        record.began_without_copy = True
        for sub in before.every:
            sub.until_us = min(sub.until_us, self.world.now)
            record.every.append(sub)
        if before.replayer:
            record.replayer = True
            record.replays = dict(before.replays)
            record.replayed = dict(before.replays)

    def _attach(self, record: SessionRecord, life: Life, expiry_s: int) -> None:
        link = life.link
        if record.links and record.expiry_low_s < NEVER_EXPIRES_S:
            if record.links[-1].ended_us + record.expiry_low_s * SECOND <= self.world.now:
                record.lapsed_us = self.world.now
        record.expiry_s = record.expiry_low_s = expiry_s
        record.link = link
        record.attached_us = self.world.now
        record.links.append(link)
        record.lives.append(life)
        record.link_copies = {}
        link.session = record

    def _fence(self, link: Link, client_id: str) -> None:
        """Of two connections of a client id, the older one is silent from the CONNACK of the newer one on (A6)."""
        link.client_id = client_id
        for life in self.ledger.lives[client_id]:
            other = life.link
            if other is link or other.first_turn == 0:
                continue
            older, newer = (other, link) if other.first_turn < link.first_turn else (link, other)
            if not newer.client_id:
                continue  # its output was no CONNACK, or was not read
            older.fenced_turn = min(older.fenced_turn, newer.first_turn)
            if older.ended_us < newer.opened_us:
                continue  # it had ended for its node, too
            unfenced = self.judge.unfenced(older, newer)
            if older.turn > newer.first_turn and not unfenced:
                self.world.violate("A6", f"{older.name} got output after {newer.name} took {client_id!r} over")

    def output(self, link: Link, data: bytes) -> None:
        """The node sends something over a connection."""
        if link.turn > link.fenced_turn and not self.judge.unfenced(link, None):
            self.world.violate("A6", f"{link.name} got output after {link.client_id!r} was taken over: {data!r}")

    def finish(self) -> None:
        """After all faults: no client id has two connections that the node believes to be alive (A6)."""
        seen: dict[str, Link] = {}
        for link in [link for host in self.ledger.hosts for link in host.links.values()]:
            if link.client_id:
                other = seen.get(link.client_id)
                if other is not None:
                    self.world.violate("A6", f"{other.name} and {link.name} both live for {link.client_id!r}")
                seen[link.client_id] = link

    def _must_live(self, record: SessionRecord, life: Life) -> bool:
        """Whether the session must exist at this moment, at the side of this connection."""
        if not record.persistent or record.expiry_low_s == 0:
            return False
        if self.judge.without_copy(record, life):
            return False
        if record.expiry_low_s < NEVER_EXPIRES_S and self.judge.expires_elsewhere(record):
            return False  # the side that did not see the client has let it expire
        if record.expiry_low_s >= NEVER_EXPIRES_S:
            return not self.judge.is_unknown_there(record.lives, life, self.ledger.slack_us)
        # The node may have been removed from the view before the connection broke: from then on the client counts as
        # absent.
        lost_us = min(self.world.now, self.judge.lost_at(record))
        return self.world.now < lost_us + record.expiry_low_s * SECOND - self.ledger.slack_us

    def _must_be_over(self, record: SessionRecord, life: Life) -> bool:
        """Whether the session must have ended before this connection began."""
        if record.expiry_s >= NEVER_EXPIRES_S:
            return False
        lost_us = max([record.created_us, *[host.started_us for host in self.ledger.hosts]])
        if self.judge.outlives_expiry(record):
            return False
        for other in self.ledger.lives[life.client_id]:
            if other is not life and other.link.ended_us >= record.created_us:
                if other.link.server_open or other.link.ended_us > life.connect_us:
                    return False
                lost_us = max(lost_us, other.link.ended_us)
        return lost_us < NEVER and life.connect_us > lost_us + record.expiry_s * SECOND + self.ledger.slack_us

    def _may_have_begun(self, life: Life, since_us: int) -> bool:
        """Whether an earlier CONNECT without an answer may have created a session."""
        for other in self.ledger.lives[life.client_id]:
            unanswered = other.accepted_us == NEVER and other.link.read_bytes > 0
            if other is not life and other.connect_us > since_us and unanswered:
                return True
        return False

    def expiry_changed(self, record: SessionRecord, expiry_s: int) -> None:
        """A DISCONNECT with another session expiry was sent, and may get lost."""
        record.expiry_low_s = min(record.expiry_s, expiry_s)
        record.expiry_s = max(record.expiry_s, expiry_s)
