"""Publishing as part of a change of one partition: QoS 2 of persistent sessions, wills, messages of lost members.

What the partition itself stores is in that change; everything for others becomes one outbox entry (`outbox`). Without
other members in the view a turn is one batch, and none of this is needed.
"""

from __future__ import annotations

from typing import Final

from folkmoot.channel.outbox import Outbox
from folkmoot.delivery.keeping import MATCHED, REFUSED, STORED
from folkmoot.delivery.plan import Plan
from folkmoot.delivery.publish import Publishing
from folkmoot.delivery.shared import ANYWHERE, REFUSALS_MAX, TRANSIENT, TRIES_MAX, Lost, place_of
from folkmoot.routing.interest import SharedLocation
from folkmoot.routing.route import Group, Route
from folkmoot.session.session import Session
from folkmoot.store.message import Message
from folkmoot.turn.message import (
    FROM_CLIENT,
    QUEUE,
    RESENT,
    RETAIN,
    STREAM,
    TO_GROUPS,
    Application,
    encode_refusals,
)
from folkmoot.turn.state import State

__all__ = ["OutboxPublishing"]

_NO_HOME: Final = -1  # in place of the partition whose own part is in the change itself


class OutboxPublishing:
    """Publishes on behalf of partitions that this node leads."""

    def __init__(self, state: State, outbox: Outbox, publishing: Publishing) -> None:
        self.state = state
        self.outbox = outbox
        self.publishing = publishing
        self.keeping = publishing.keeping
        self.shared = publishing.shared
        self.node_id = publishing.fabric.node_id
        self._plan = Plan()  # of the current message

    def publish(self, home: int, message: Message, publisher: Session | None, producer: bytes, number: int) -> int:
        """Deliver and store a message with this turn's change of `home`; flags as of `Publishing.publish`."""
        publishing = self.publishing
        if not self.outbox.is_needed(home):
            return publishing.publish(message, publisher, producer, number)
        self.keeping.begin()
        self._plan = Plan()
        route = publishing.routes.lookup(message.topic)
        result = 0
        if message.retain:
            result |= self._retain(home, message, producer, number)
            if result & REFUSED:
                return result
        result |= self._logs(home, route, message, producer, number)
        result |= self._persistent(home, route, message, publisher, producer, number)
        if route.groups or route.shared:
            result |= MATCHED | STORED
            # members take turns, and none knows what the others received
            if self.keeping.takes(home, producer, number):
                self._groups(home, route, message)
        message.origin = b""
        self._to_nodes(route)
        if self._plan.nodes:
            result |= MATCHED
        result |= self._promise(home, message, publisher, producer, number)
        if not result & MATCHED:
            self.state.counters.publish_unmatched += 1
        return result

    def entrust(self, home: int, message: Message, origin: bytes, number: int) -> int:
        """Put the whole message into the outbox with this turn's change of `home`, the part of `home` included.

        Nobody gets it before the change is committed, and it can be taken back as a whole. origin, number: under which
        all others know it, whoever publishes it (`store/origin`). REFUSED: the node stores no more retained messages,
        and nothing has happened.
        """
        publishing = self.publishing
        if not self.outbox.is_needed(home):
            return publishing.publish(message, None, b"", 0)
        self.keeping.begin()
        self._plan = Plan()
        route = publishing.routes.lookup(message.topic)
        result = 0
        if message.retain:
            result |= self._retain(_NO_HOME, message, b"", 0)
            if result & REFUSED:
                return result
        result |= self._logs(_NO_HOME, route, message, b"", 0)
        result |= self._persistent(_NO_HOME, route, message, None, b"", 0)
        self._groups(_NO_HOME, route, message)
        self._to_nodes(route)
        plan = self._plan
        if plan.is_empty():
            self.state.counters.publish_unmatched += 1
            return result
        self.outbox.put(home, message, origin, number, 0, list(plan.tasks.values()), plan.nodes)
        self.state.counters.cluster_messages_sent += len(plan)
        return result | MATCHED | STORED

    def is_barred(self, topic: bytes, retain: bool) -> bool:
        """Whether a message may not be promised now: it would wait for a partition without a leader, like too many."""
        if not self.outbox.commits.throttle.is_stranded_full():
            return False
        return self.publishing.routes.out_of_reach(topic, retain, False) >= 0

    def _to_nodes(self, route: Route) -> None:
        """Add the transient subscribers of all nodes."""
        if route.transient:
            self._plan.add_node(self.node_id)
        for node_id in route.nodes:
            self._plan.add_node(node_id)

    def _retain(self, home: int, message: Message, producer: bytes, number: int) -> int:
        partition = self.state.partition_of(message.topic)
        if partition == home:
            return self.keeping.retain(message, producer, number)
        if self.state.leads[partition] and not self.keeping.retained.has_room(message):
            return REFUSED
        self._plan.add_task(partition, RETAIN)
        return STORED

    def _logs(self, home: int, route: Route, message: Message, producer: bytes, number: int) -> int:
        if not route.logs and not route.away_logs:
            return 0
        if self.state.storage_full and message.qos == 0:
            self.state.counters.storage_refused += 1
            return MATCHED | STORED
        mine = [log for log in route.logs if log.store_partition == home]
        if mine:
            self.keeping.stream(mine, message, producer, number)
        for log in route.logs:
            if log.store_partition != home:
                self._plan.add_task(log.store_partition, STREAM)
        for partition in route.away_logs:
            self._plan.add_task(partition, STREAM)
        return MATCHED | STORED

    def _persistent(
        self, home: int, route: Route, message: Message, publisher: Session | None, producer: bytes, number: int
    ) -> int:
        mine = [recipient for recipient in route.persistent if recipient.session.partition == home]
        result = self.keeping.store(mine, message, publisher, producer, number) if mine else 0
        for recipient in route.persistent:
            if recipient.session.partition != home:
                self._plan.add_task(recipient.session.partition, QUEUE)
                result |= MATCHED | STORED
        for partition in route.away:
            self._plan.add_task(partition, QUEUE)
            result |= MATCHED | STORED
        return result

    def _groups(self, home: int, route: Route, message: Message) -> None:
        """Add one member of each shared subscription, wherever it is."""
        for group in route.groups:
            locations = route.shared.get(group.name)
            chosen = None if locations is None else self.shared.choose_location(group.name, group, locations)
            if chosen is not None:
                self._plan.add_member(chosen)
            else:
                self._give(home, group, message)
        for name in self.shared.only_elsewhere(route):
            chosen = self.shared.choose_location(name, None, route.shared[name])
            if chosen is not None:
                self._plan.add_member(chosen)

    def _give(self, home: int, group: Group, message: Message) -> None:
        """Add a member at this node."""
        member = self.shared.choose(group, ANYWHERE)
        if member is None:
            return
        session = member.session
        if not session.persistent:
            self._plan.add_node(self.node_id).append(group.name)
        elif session.partition != home:
            self._plan.add_task(session.partition, 0).groups.append(group.name)
        elif not self.shared.offer(member, group, message, home):
            self.shared.lose(Lost(group.name, message, home, [self.shared.location_of(home)]))

    def _promise(self, home: int, message: Message, publisher: Session | None, producer: bytes, number: int) -> int:
        """Write the outbox entry; transient subscribers here alone need none, because they end with the node."""
        plan = self._plan
        if plan.is_empty():
            return 0
        flags = 0 if publisher is None else FROM_CLIENT
        if message.resent:
            flags |= RESENT
        connection = None if publisher is None else publisher.connection
        if len(plan) == 1 and self.node_id in plan.nodes and not self.outbox.busy(home):
            self.publishing.deliver(Application(message, producer, number, flags), plan.nodes[self.node_id])
            return 0
        tasks = list(plan.tasks.values())
        if publisher is not None and not all(self.publishing.fabric.leaders[task.partition] for task in tasks):
            self.state.counters.publish_deferred += 1
        self.outbox.put(home, message, producer, number, flags, tasks, plan.nodes, connection)
        self.state.counters.cluster_messages_sent += len(plan)
        return STORED

    # -- messages of lost members -------------------------------------------------------------------------------------

    def pass_on(self, only_of_partitions: bool = False) -> None:
        """Give the messages of shared subscriptions that have lost their member to another member, at any node.

        only_of_partitions: those that a partition forgets in this turn's change. Others are nobody's but this node's.
        """
        waiting: list[Lost] = []
        while self.shared.homeless:
            homeless = self.shared.homeless
            self.shared.homeless = []
            for lost in homeless:
                if only_of_partitions and lost.home < 0:
                    waiting.append(lost)
                elif not self._pass_on(lost):
                    self.state.counters.publish_unmatched += 1
        self.shared.homeless = waiting

    def _pass_on(self, lost: Lost) -> bool:
        """Give it to another member; False: there is none. What all refuse is dropped, as a full queue drops it."""
        plan = Plan()
        shared = self.shared
        locations = self.publishing.routes.interest.locations_of(lost.group)
        others = [one for one in locations if one.location.name not in lost.refused]
        if not shared.keeps(lost.message):
            others = [one for one in others if one.count > one.absent]
        if self._pass_on_here(lost, others, plan):
            return True
        if lost.refused or not shared.keeps(lost.message):
            others = self.publishing.routes.interest.within_reach(others)  # a full group lets nothing wait for a leader
        if plan.is_empty() and len(lost.refused) < REFUSALS_MAX:
            location = shared.choose_location(lost.group, None, others)
            if location is not None:
                plan.add_member(location)
        if plan.is_empty():
            unheard = self.state.unheard
            known = bool(lost.refused or locations)
            if unheard < 0 or lost.home < 0 or shared.location_of(unheard) in lost.refused:
                return known
            if known:
                lost.refused.append(shared.location_of(unheard))  # it is asked once
            plan.add_task(unheard, 0).groups.append(lost.group)  # whose leader looks for a member
        tasks = list(plan.tasks.values())
        refused = encode_refusals(lost.refused)
        home = lost.home
        if home < 0 and not all(self.publishing.fabric.leaders[task.partition] for task in tasks):
            home = self._any_home()  # it waits until the member's partition has a leader
        if home >= 0:
            self.outbox.put(home, lost.message, refused, 0, TO_GROUPS, tasks, plan.nodes)
        else:
            self.publishing.forward_sender.publish(lost.message, refused, 0, TO_GROUPS, tasks, plan.nodes)
        return True

    def _any_home(self) -> int:
        """Return a partition of this node that has room for a message that waits, -1: there is none."""
        if self.outbox.commits.throttle.is_stranded_full():
            return -1
        for partition in range(self.state.partitions):
            if self.state.leads[partition]:
                return partition
        return -1

    def _pass_on_here(self, lost: Lost, others: list[SharedLocation], plan: Plan) -> bool:
        """Give it to a member at this node, or add one to the plan; False: nobody has got it yet."""
        shared = self.shared
        group = self.publishing.routes.groups.get(lost.group)
        if group is None:
            return False
        for _ in range(TRIES_MAX):
            member = shared.choose(group, ANYWHERE, lost.refused)
            if member is None or (member.absent and shared.is_anybody_there(others)):
                return False
            place = place_of(member.session)
            together = place in (lost.home, TRANSIENT) or lost.home < 0  # or in the one batch of a single node
            if together or not self.outbox.is_needed(lost.home):
                if shared.offer(member, group, lost.message, place):
                    return True
            elif shared.would_take(member, lost.message):
                plan.add_task(place, 0).groups.append(group.name)
                return False
            lost.refused.append(shared.location_of(place))
        return False
