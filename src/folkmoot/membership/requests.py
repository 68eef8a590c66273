"""What this member asks of the controller: sent again until there is a reply, and asked anew while it is still wanted.

Two kinds of requests. A *wish* is for a command that says itself to which state it applies, so it may be made twice; it
is known by what it is for, and whoever wants it repeats it. A *ticket* is for a change of a setting, which is made
once: its owner gets the answer, after `ControlOptions.setting_ns` at the latest, also where nobody leads.
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.cluster_member import ClusterMember
from folkmoot.membership.cluster_settings import RequestId, is_possible
from folkmoot.membership.command import (
    FORGOTTEN,
    Command,
    Delete,
    Evict,
    Leave,
    Put,
    Remove,
    Renew,
    Stay,
    Withdraw,
    decode_command,
    encode_command,
)
from folkmoot.membership.configuration import REMOVALS_MAX, ClusterConfiguration, Removal
from folkmoot.membership.control_message import Reply, Request
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.isr import isr_request
from folkmoot.membership.lifecycle import is_leaving, is_up
from folkmoot.membership.transition import (
    ACCEPTED,
    INVALID,
    LAST_COPY,
    OLD_VERSION,
    REASONS,
    RUNS,
    UNMERGED,
    WRONG_STATE,
)

__all__ = ["NOT_ASKED", "TICKETS_MAX", "UNKNOWN_FATE", "Requests", "SettingAnswer"]

UNKNOWN_FATE: Final = -1
"""There was no answer in time, or this member takes part in another lineage now: the change may have been made."""

NOT_ASKED: Final = -2
"""Nobody was asked: there was no controller in time, or this process waits for too many answers."""

TICKETS_MAX: Final = 256  # on their way at one process

_ISR: Final = "isr"


class SettingAnswer:
    """What became of a request for a setting: its ticket, the index of its entry, and `ACCEPTED` or why not.

    The index is the number of the setting. A request that is made again, because its reply was lost, has the answer of
    the first one.
    """

    def __init__(self, ticket: int, index: int, refused: int) -> None:
        self.ticket = ticket
        self.index = index
        self.refused = refused

    def text(self) -> str:
        """Return the answer, for people."""
        if self.refused == UNKNOWN_FATE:
            return "there was no answer: the change may have been made"
        return REASONS[self.refused] if self.refused >= 0 else "nobody could be asked: nothing was changed"


class _Open:
    """A request on its way, or one that was refused."""

    def __init__(self, number: int, command: bytes, ticket: int) -> None:
        self.number = number
        self.command = command
        self.ticket = ticket
        self.since_ns: int = 0  # when it was looked at first
        self.sent_ns: int = 0
        self.times: int = 0  # that it was sent
        self.is_open: bool = True
        self.stays: int = 0  # the disk that was to leave, if that was taken back after it was sent


class Requests:
    """The requests of one process.

    disk: of this process; incarnation: its start. answers: to tickets, taken by the owner. removals: of the lineages
    that this process has left, as far as the present one may not know them; they outlive the process, so they are
    written when they have changed.
    """

    def __init__(self, disk: int, incarnation: int, options: ControlOptions) -> None:
        self.answers: list[SettingAnswer] = []
        self.removals: list[Removal] = []
        self.are_removals_changed: bool = False
        self.refusals: list[tuple[Remove, int]] = []  # orders that were refused, and why; taken by the owner
        self._disk = disk
        self._incarnation = incarnation
        self._options = options
        self._open: dict[str, _Open] = {}  # by what it is for
        self._again: list[tuple[Command, int]] = []  # orders that knew an old version, and the entries that said so
        self._numbers: int = 0
        self._filled: dict[tuple[int, int], tuple[int, int, int]] = {}  # see `isr_request`
        self._recovered: dict[int, tuple[int, int]] = {}  # see `isr_request`
        self._isr_ns: int = 0  # when to ask for ISRs again

    def begin(self) -> None:
        """Forget all: this process takes part in another lineage."""
        for request in self._open.values():
            if request.ticket:
                self._give_up(request)
        self._open.clear()
        self._again.clear()
        self._filled.clear()
        self._recovered.clear()

    def keep_removals(self, removed: list[Removal]) -> None:
        """Keep the removals of the lineage that this process leaves, and those of earlier ones that are open in it.

        It may leave a lineage before it was up there and could ask for anything.
        """
        kept = {removal.disk: removal for removal in self.removals}
        for removal in removed:
            known = kept.get(removal.disk)
            if known is None or known.incarnation <= removal.incarnation:
                kept.pop(removal.disk, None)  # the newest come last
                kept[removal.disk] = removal
        self.removals = list(kept.values())[-REMOVALS_MAX:]
        self.are_removals_changed = True

    def next_number(self) -> int:
        """Return the number of a further request."""
        self._numbers += 1
        return self._numbers

    # What is wanted

    def put(self, key: str, value: bytes, expected: int, author: str) -> int:
        """Ask for a setting of the whole cluster; return the ticket that `answers` will name."""
        ticket = self.next_number()
        if self._may_ask(key, author, len(value), ticket):
            self._ask_once(ticket, Put(key, value, expected, author, self._id(ticket)))
        return ticket

    def delete(self, key: str, expected: int, author: str) -> int:
        """Ask for the end of a setting; return the ticket that `answers` will name."""
        ticket = self.next_number()
        if self._may_ask(key, author, 0, ticket):
            self._ask_once(ticket, Delete(key, expected, author, self._id(ticket)))
        return ticket

    def refuse(self, reason: int) -> int:
        """Refuse a request that is outdated; return its ticket."""
        ticket = self.next_number()
        self.answers.append(SettingAnswer(ticket, 0, reason))
        return ticket

    def _may_ask(self, key: str, author: str, size: int, ticket: int) -> bool:
        """Tell whether a request can be accepted at all, else answer it: the log might not even take it."""
        if not is_possible(key, author, size):
            self.answers.append(SettingAnswer(ticket, 0, INVALID))
            return False
        if len(self._tickets()) >= TICKETS_MAX:
            self.answers.append(SettingAnswer(ticket, 0, NOT_ASKED))
            return False
        return True

    def _tickets(self) -> list[int]:
        return [request.ticket for request in self._open.values() if request.ticket]

    def _id(self, ticket: int) -> RequestId:
        return RequestId(self._disk, self._incarnation, ticket, min([ticket, *self._tickets()]))

    def _ask_once(self, ticket: int, command: Command) -> None:
        self._open[f"once {ticket}"] = _Open(ticket, encode_command(command), ticket)

    def _give_up(self, request: _Open) -> None:
        """Answer a request whose answer nobody waits for any more."""
        self.answers.append(SettingAnswer(request.ticket, 0, UNKNOWN_FATE if request.times else NOT_ASKED))

    def expire(self, now: int, is_over: bool) -> None:
        """Answer the tickets that had no answer in time; is_over: this process asks for nothing any more."""
        for key in [key for key in self._open if self._open[key].ticket]:
            request = self._open[key]
            request.since_ns = request.since_ns or now
            if is_over or now - request.since_ns >= self._options.setting_ns:
                self._give_up(request)
                del self._open[key]

    def leave(self, configuration: ClusterConfiguration | None, node_id: str) -> None:
        """Have a member hand over what it holds, and leave."""
        member = None if configuration is None else configuration.named(node_id)
        if member is not None and not is_leaving(member.state):
            self._wish(_leave_key(member), Leave(member.disk, member.version))
            self._open[_leave_key(member)].stays = 0

    def asks_to_leave(self, member: ClusterMember) -> bool:
        """Tell whether this process asks for the leave of a member, and that was not taken back."""
        request = self._open.get(_leave_key(member))
        if request is not None and request.is_open and request.stays == 0:
            return True
        return any(isinstance(command, Leave) and command.disk == member.disk for command, _index in self._again)

    def stay(self, configuration: ClusterConfiguration | None, node_id: str) -> None:
        """Take the leave of a member back: what was asked for and not judged yet becomes an entry, and then this."""
        member = None if configuration is None else configuration.named(node_id)
        if member is None:
            return
        if is_leaving(member.state):
            self._wish(f"stay {member.disk} {member.version}", Stay(member.disk, member.version))
            return
        self._again = [one for one in self._again if not isinstance(one[0], Leave) or one[0].disk != member.disk]
        request = self._open.get(_leave_key(member))
        if request is not None and request.sent_ns:
            request.stays = member.disk
        elif request is not None:
            del self._open[_leave_key(member)]

    def evict(self, configuration: ClusterConfiguration | None, node_id: str) -> None:
        """Put the process of a member out until it is started again."""
        member = None if configuration is None else configuration.named(node_id)
        if member is not None and member.evicted < member.incarnation:
            self._wish(f"evict {member.disk} {member.incarnation}", Evict(member.disk, member.incarnation))

    def forget(self, configuration: ClusterConfiguration, disk: int, force: bool) -> None:
        """Remove a member that is away; only by force if something is lost with it, as the log finds (`transition`)."""
        member = configuration.members[disk]
        if not is_up(member.state):
            remove = Remove(disk, member.version, FORGOTTEN, force)
            self._wish(f"forget {disk} {member.version} {force}", remove)

    def withdraw(self, configuration: ClusterConfiguration | None, partitions: list[int], damaged: list[int]) -> None:
        """Say that copies here are behind, or damaged: they are in sync no more, if there are others that are.

        A partition whose last copy in sync is damaged has no leader until this process is started again.
        """
        if configuration is None:
            return
        known = [(number, configuration.partitions[number].version) for number in damaged]
        request = Withdraw(self._disk, self._incarnation, partitions, known)
        self._wish(f"withdraw {partitions} {known}", request)

    def filled(self, partition: int, disk: int, leader_epoch: int, started: int, version: int) -> None:
        """A learner of a partition that this member leads has everything: from now on the leader waits for it too.

        It is asked for until it is in the ISR, or the partition has changed. `leader_epoch`, `started` (of the learner)
        and `version` (of the partition) are those of the configuration under which it was filled.
        """
        self._filled[(partition, disk)] = (leader_epoch, started, version)

    def recovered(self, partition: int, leader_epoch: int, version: int) -> None:
        """All that is left of a partition that this member leads is the same now, as with `filled`."""
        self._recovered[partition] = (leader_epoch, version)

    def renew(self) -> None:
        """Have everybody begin anew with everybody: messages between members are lost."""
        self._wish("renew", Renew(self._disk, self._incarnation))

    def repeat(self, configuration: ClusterConfiguration, now: int) -> None:
        """Ask for what this process, which is up, wants until it is so."""
        if self._again:
            self._ask_again(configuration)
        if self._filled or self._recovered:
            self._ask_isr(configuration, now)

    def _ask_again(self, configuration: ClusterConfiguration) -> None:
        """Ask anew, with the version that is known now, for orders about members that had changed meanwhile.

        An order that was sent twice may be refused because it was accepted before, and may have been taken back since:
        it is not among them. What is about this member itself, `Control` and `Membership` repeat.
        """
        again = self._again
        self._again = []
        for command, index in again:
            if configuration.index < index:
                self._again.append((command, index))
            elif isinstance(command, (Leave, Stay, Remove)) and command.disk != self._disk:
                member = configuration.members.get(command.disk)
                if member is None:
                    continue
                if isinstance(command, Leave):
                    self.leave(configuration, member.node_id)
                elif isinstance(command, Stay):
                    self.stay(configuration, member.node_id)
                else:
                    self.forget(configuration, command.disk, command.force)

    def _ask_isr(self, configuration: ClusterConfiguration, now: int) -> None:
        """Ask for the ISRs with the learners that are filled, and for the end of recoveries, all with one request."""
        if _ISR in self._open or now < self._isr_ns:
            return
        request = isr_request(configuration, self._disk, self._filled, self._recovered, self._options.min_in_sync)
        if request is not None:
            self._isr_ns = now + self._options.heartbeat_ns // 4
            self._wish(_ISR, request)

    def tell_removals(self, configuration: ClusterConfiguration, live: list[int]) -> None:
        """Have those leave that were removed in a lineage from which this member came: they do not come back.

        A member that was started since is another matter, and so is one that is among `live`, the disks of those that
        have a lease in this lineage. One that leaves may have what no other has, and stays until it has handed over.
        """
        open_removals: list[Removal] = []
        for removal in self.removals:
            member = configuration.members.get(removal.disk)
            if member is None or member.incarnation > removal.incarnation or is_leaving(member.state):
                continue
            if not is_up(member.state):
                self.leave(configuration, member.node_id)
            elif member.disk in live:
                continue
            open_removals.append(removal)
        if len(open_removals) < len(self.removals):
            self.removals = open_removals
            self.are_removals_changed = True

    def _wish(self, key: str, command: Command) -> None:
        """Ask for a command until it is judged; the command says itself of which state it is."""
        if key in self._open and self._open[key].is_open:
            return
        self._open[key] = _Open(self.next_number(), encode_command(command), 0)

    # What goes, and what comes

    def due(self, lineage: int, now: int) -> list[Request]:
        """Return the requests that are to be sent to the controller now; call `sent` with those that it gets."""
        found: list[Request] = []
        for key in list(self._open):
            request = self._open[key]
            waited = now - request.sent_ns >= self._options.reply_ns
            if not request.is_open:
                if waited:
                    del self._open[key]  # if it is still wanted, it is asked for anew
            elif request.sent_ns == 0 or waited:
                found.append(Request(lineage, request.number, request.command))
        return found

    def sent(self, requests: list[Request], now: int) -> None:
        """Count the time until a reply from now on."""
        numbers = {request.number: True for request in requests}
        for request in self._open.values():
            if request.number in numbers:
                request.sent_ns = now
                request.times += 1

    def replied(self, reply: Reply, now: int) -> None:
        """Take the controller's reply to a request."""
        for key, request in list(self._open.items()):
            if request.number != reply.number:
                continue
            if reply.lost:
                again_ns = now - self._options.reply_ns + self._options.heartbeat_ns
                request.sent_ns = min(request.sent_ns, again_ns)
            elif key == _ISR:
                del self._open[key]
            elif request.ticket:
                self.answers.append(SettingAnswer(request.ticket, reply.index, reply.refused))
                del self._open[key]
            else:
                request.is_open = False
                request.sent_ns = now
                if request.stays and reply.refused == ACCEPTED:  # the entry is the version of the member
                    self._wish(f"stay {request.stays} {reply.index}", Stay(request.stays, reply.index))
                elif request.stays and reply.refused in (OLD_VERSION, WRONG_STATE):
                    # An earlier copy may have been accepted, whose reply was lost: then the member leaves.
                    self._again.append((Stay(request.stays, 0), reply.index))
                elif reply.refused == OLD_VERSION and request.stays == 0 and request.times == 1:
                    self._again.append((decode_command(request.command), reply.index))
                elif reply.refused in (LAST_COPY, UNMERGED, RUNS):
                    command = decode_command(request.command)
                    if isinstance(command, Remove):
                        self.refusals.append((command, reply.refused))
            return


def _leave_key(member: ClusterMember) -> str:
    return f"leave {member.disk} {member.version}"
