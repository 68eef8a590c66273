"""A history without a fault, made by hand, for tests that plant faults in it."""

from __future__ import annotations

from typing import Any

from tests.jepsen.history import Event

__all__ = ["Story", "good"]

STEP_US = 10_000
NEVER = 0xFFFF_FFFF


class Story:
    """Writes events as a perfect cluster and its clients would, each 10 ms after the one before."""

    def __init__(self, policy: str = "majority", replicas: int = 3, nodes: int = 3) -> None:
        self.now = 0
        self.events: list[Event] = []
        self.connections: dict[int, str] = {}
        self.sessions: set[str] = set()
        self.ids = 0
        names = [f"n{number}" for number in range(1, nodes + 1)]
        self.add("run", policy=policy, replicas=replicas, nodes=names, stream="j/#", partitions=1)
        self.world()

    def add(self, kind: str, **fields: Any) -> None:
        self.now += STEP_US
        self.events.append({"t": self.now, "e": kind, **fields})

    def wait(self, seconds: float) -> None:
        self.now += int(seconds * 1e6)

    def world(self, cut: list[list[str]] | None = None, down: list[str] | None = None) -> None:
        self.add("world", cut=cut or [], down=down or [], stopped=[], clients=[])

    def connect(self, client: str, node: str, *, expiry: int = NEVER, will: dict[str, Any] | None = None) -> int:
        number = len(self.connections) + 1
        self.connections[number] = client
        self.add("connect", k=number, c=client, node=node, clean=not expiry, expiry=expiry, will=will)
        self.add("connack", k=number, code=0, present=client in self.sessions)
        if expiry:
            self.sessions.add(client)
        return number

    def close(self, number: int, by: str = "client") -> None:
        self.add("close", k=number, by=by, why="")

    def disconnect(self, number: int) -> None:
        self.add("disconnect", k=number, d="out", code=0)
        self.close(number)

    def subscribe(self, number: int, *filters: tuple[str, int]) -> None:
        self.ids += 1
        self.add("subscribe", k=number, id=self.ids, filters=[list(one) for one in filters])
        self.add("suback", k=number, id=self.ids, codes=[qos for _, qos in filters])

    def unsubscribe(self, number: int, *filters: str) -> None:
        self.ids += 1
        self.add("unsubscribe", k=number, id=self.ids, filters=list(filters))
        self.add("unsuback", k=number, id=self.ids, codes=[0])

    def publish(self, number: int, topic: str, value: str, qos: int = 1, *, retain: bool = False) -> None:
        self.ids += 1
        self.message("out", number, topic, value, qos, retain)
        if qos == 1:
            self.add("puback", k=number, d="in", id=self.ids, code=0)
        else:
            self.add("pubrec", k=number, d="in", id=self.ids, code=0)
            self.add("pubrel", k=number, d="out", id=self.ids, code=0)
            self.add("pubcomp", k=number, d="in", id=self.ids, code=0)

    def deliver(self, number: int, topic: str, value: str, qos: int = 1, *, retain: bool = False) -> None:
        self.ids += 1
        self.message("in", number, topic, value, qos, retain)
        if qos == 1:
            self.add("puback", k=number, d="out", id=self.ids, code=0)
        else:
            self.add("pubrec", k=number, d="out", id=self.ids, code=0)
            self.add("pubrel", k=number, d="in", id=self.ids, code=0)
            self.add("pubcomp", k=number, d="out", id=self.ids, code=0)

    def message(self, way: str, number: int, topic: str, value: str, qos: int, retain: bool) -> None:
        noted = {"topic": topic, "value": value, "qos": qos, "retain": retain, "dup": False}
        self.add("publish", k=number, d=way, **noted, id=self.ids)

    def ping(self, number: int) -> None:
        self.add("pingreq", k=number)
        self.add("pingresp", k=number)

    def page(self, node: str, begin: int, records: list[list[Any]]) -> None:
        numbered = [[begin + at, *record] for at, record in enumerate(records)]
        noted = {"node": node, "sent": self.now, "partition": 0, "from": begin, "status": 200}
        self.add("records", **noted, end=begin + len(records), records=numbered)

    def ready(self, node: str, status: int = 200) -> None:
        self.add("ready", node=node, sent=self.now, status=status)

    def probe(self, node: str, number: int) -> None:
        connection = self.connect(f"probe-{node}-{number}", node, expiry=0)
        self.publish(connection, f"p/{node}", f"probe-{node}-{number}")
        self.disconnect(connection)


def good(policy: str = "majority") -> Story:
    """A short run with a bit of everything, in which every promise has something to judge and none is broken."""
    story = Story(policy)
    story.add("phase", name="faults")
    publisher = story.connect("pub0", "n1")
    subscriber = story.connect("steady", "n2")
    story.subscribe(subscriber, ("j/#", 2))
    members = [story.connect(f"group{number}", "n3") for number in range(2)]
    for member in members:
        story.subscribe(member, ("$share/g/j/1", 2))
    collector = story.connect("wills", "n1")
    story.subscribe(collector, ("w/#", 2), ("t/#", 2))
    story.ready("n1")
    records: list[list[Any]] = []
    for number in range(1, 61):
        topic, qos, value = f"j/{number % 2}", 1 + number // 2 % 2, f"pub0:{number}"
        story.publish(publisher, topic, value, qos)
        if number == 30:
            story.close(subscriber)
            subscriber = story.connect("steady", "n3")
        story.deliver(subscriber, topic, value, qos)
        if number % 2:
            story.deliver(members[number // 2 % 2], topic, value, qos)
        records.append([topic, value, "pub0"])
        if number == 20:
            story.page("n1", 0, records)
        if number % 10 == 0:
            story.ready("n1")
            story.probe("n1", number)
            story.ready("n1")
    for number, will in enumerate((0, 2)):
        mortal = story.connect("will", "n2", will={"topic": "w/1", "value": f"will:{number}", "qos": 2, "delay": will})
        story.ping(mortal)
        story.close(mortal)
        story.wait(will)
        story.deliver(collector, "w/1", f"will:{number}", 2)
    older = story.connect("twin", "n1")
    story.ping(older)
    newer = story.connect("twin", "n2")
    story.close(older, by="peer")
    story.ping(newer)
    keeper = story.connect("keeper", "n3")
    for number in range(1, 4):
        story.publish(keeper, "r/1", f"keeper:{number}", retain=True)
        looker = story.connect(f"look{number}", "n2", expiry=0)
        story.subscribe(looker, ("r/#", 1))
        story.deliver(looker, "r/1", f"keeper:{number}", retain=True)
        story.disconnect(looker)
    story.publish(keeper, "r/1", "", retain=True)
    looker = story.connect("look4", "n2", expiry=0)
    story.subscribe(looker, ("r/#", 1))
    story.add("quiet", k=looker)
    story.disconnect(looker)
    for number, committed in ((1, True), (2, False), (3, True)):
        messages = [["t/1", f"teller:{number}:{place}"] for place in range(3)]
        story.add("stage", app="teller", number=number, messages=messages)
        if committed:
            story.add("commit", app="teller", number=number)
            story.add("committed", app="teller", number=number)
            for topic, value in messages:
                story.deliver(collector, topic, value, 2)
    story.add("phase", name="rest")
    story.add("phase", name="final")
    for node in ("n1", "n2", "n3"):
        story.page(node, 0, records)
        story.ready(node)
    story.add("phase", name="end")
    return story
