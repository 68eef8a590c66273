"""Drawn runs: wills, and sessions that expire, while leaderships move (A1, A6 to A8, A13).

Clients lose connections, end them with and without their wills, come back in time, late, elsewhere, or with a clean
start. In the end every will that is owed must have come, as often as its QoS says, and none that was withdrawn; no
session may have ended early, or be there when its interval is over.
"""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.mqtt.packet import V5, V311
from tests.harness.soak import seeds
from tests.simulated_cluster.drawn import AWAY, OPEN, DrawnClient
from tests.simulated_cluster.drawn_wills import MAYBE, NO, WITH_WILL, YES, Life, WillClient, WillLedger
from tests.simulated_cluster.moving import SCARCE, SHAPES, TOPICS, Run

DRAWN = seeds(range(8), range(400))
PRESSED = seeds(range(6), range(200))
WATCHED = "w/#"
SOON_US = SECOND // 5  # a will comes so soon when it is due, in a cluster at rest


class WillRun(Run):
    """A run whose clients have wills, and sessions that expire."""

    ledger: WillLedger

    def __init__(self, seed: int, shapes: tuple[tuple[int, int, int, int], ...] = SHAPES) -> None:
        self.watchers: list[WillClient] = []
        self.calm_us = 0  # when everything was whole again
        super().__init__(seed, shapes)
        self.restlessness = self.rng.choice((0.1, 0.3, 0.6))
        self.outcomes = {YES: 0, NO: 0, MAYBE: 0}

    def _draw_clients(self) -> list[DrawnClient]:
        rng = self.rng
        self.ledger = WillLedger()
        for number, qos in enumerate((2, 1, 2)):
            watcher = WillClient(self.cluster, self.ledger, f"watch{number}", rng, version=rng.choice((V5, V311)))
            watcher.filters = {WATCHED: qos}
            watcher.keep()
            self.watchers.append(watcher)
        clients: list[DrawnClient] = [*self.watchers]
        for number in range(rng.randint(2, 4)):
            client = WillClient(self.cluster, self.ledger, f"c{number}", rng, version=rng.choice((V5, V5, V5, V311)))
            names = rng.sample([*TOPICS, "r/#"], rng.randint(1, 2))
            client.filters = {name: rng.choice((1, 2, 2)) for name in names}
            clients.append(client)
        return clients

    def clients_connect(self) -> None:
        """Connect the watchers, and let them subscribe, before there is any will."""
        for watcher in self.watchers:
            watcher.connect(self.rng.choice(list(self.cluster.sites)))
        self.cluster.run()
        self.look()
        for watcher in self.watchers:
            watcher.subscribe(WATCHED)
        self.cluster.run()
        self.look()
        assert all(watcher.sure.get(WATCHED) for watcher in self.watchers)
        everybody = self.clients
        self.clients = [client for client in everybody if client not in self.watchers]
        super().clients_connect()
        self.clients = everybody

    def act(self, client: DrawnClient) -> None:
        """Have a client do something; watchers only leave and come back."""
        rng = self.rng
        assert isinstance(client, WillClient)
        if client in self.watchers:
            self._act_as_watcher(client)
        elif client.state != OPEN:
            if client.state == AWAY or rng.random() < 0.2:
                self._connect(client)
        elif rng.random() >= self.restlessness:
            self.ask(client)
        else:
            self._end_connection(client)

    def ask(self, client: DrawnClient) -> None:
        """Have a client ask for something; watchers publish."""
        if client in self.watchers:
            client.publish(self.rng.choice(TOPICS), self.rng.choice((1, 2)), False)
        else:
            super().ask(client)

    def _act_as_watcher(self, client: WillClient) -> None:
        chance = self.rng.random()
        if client.state == AWAY:
            self._connect(client)
        elif chance < 0.1 and client.state == OPEN:
            self.note(f"{client} loses its connection")
            client.lose()
        elif chance < 0.15:
            self._connect(client)
        elif chance < 0.25:
            client.lazy = not client.lazy

    def _connect(self, client: WillClient) -> None:
        site = self.rng.choice([site.name for site in self.cluster.live()])
        client.connect(site, client not in self.watchers and self.rng.random() < 0.12)
        self.note(f"{client} connects: {client.life}")

    def _end_connection(self, client: WillClient) -> None:
        rng = self.rng
        how = rng.choice(("lost", "lost", "goodbye", "with will", "again", "again", "expiry"))
        self.note(f"{client} ends its connection: {how}")
        if how == "lost":
            client.lose()
        elif how == "again":
            self._connect(client)
        elif client.version != V5 or how == "goodbye":
            client.disconnect()
        elif how == "with will":
            client.disconnect(WITH_WILL)
        else:
            expiry_s = rng.choice((0, 1, 2, 3)) if client.expiry_s else None
            client.disconnect(rng.choice((0, WITH_WILL)), expiry_s)

    def look(self) -> bool:
        """Have all clients look at what has come."""
        came = super().look()
        self.ledger.changed_us = self.changed_us
        return came

    # -- the end ------------------------------------------------------------------------------------------------------

    def _return(self) -> None:
        """Watchers come back; others leave, or come back late or in time. Then all delays pass."""
        self.calm_us = self.now
        for client in self.clients:
            if client.state == AWAY:
                client.hang_up()
        self._come_back(self.watchers)
        everybody = [client for client in self.clients if isinstance(client, WillClient)]
        others = [client for client in everybody if client not in self.watchers]
        for client in others:
            self.rng.choice((lambda client: None, self._end_connection))(client) if client.state == OPEN else None
        self._rest(self.rng.choice((1, 12, 22)))
        self._come_back([client for client in others if client.state == AWAY and self.rng.random() < 0.7])
        for client in others:
            if client.state == OPEN and self.rng.random() < 0.7:
                self._end_connection(client)
        self._rest(55)
        self._come_back([client for client in others if client.state == AWAY and client.has_session])
        for client in self.clients:
            waits = client.waits()
            assert client.state != OPEN or not waits, f"{client} waits for {waits} in the end"
            assert client.state != OPEN or not client.left, f"A6: {client} has other connections: {client.left}"

    def _come_back(self, clients: list[WillClient]) -> None:
        for client in clients:
            if client.state == AWAY:
                self._connect(client)
        self._rest(3)
        for client in clients:
            assert client.state == OPEN, f"{client} is {client.state}"

    def _judge(self) -> None:
        super()._judge()
        for life in self.ledger.lives:
            if life.will is not None:
                self._judge_will(life)
        for client in self.clients:
            if client.name.startswith("c"):
                self._judge_retained(f"w/{client.name}")

    def _judge_will(self, life: Life) -> None:
        ledger = self.ledger
        will = life.will
        assert will is not None
        outcome = ledger.outcome(life)
        self.outcomes[outcome] += 1
        for watcher in self.watchers:
            came = watcher.wills.get(life.number, [])
            qos = min(will.qos, watcher.filters[WATCHED])
            if outcome == NO:
                assert not came, f"A7: {life} owes no will, {watcher} has got it: {came}"
            if outcome == YES and will.qos:
                assert came, f"A7: the will of {life} did not come to {watcher}"
            if qos == 2:
                assert len(came) < 2, f"A7: the will of {life} came to {watcher} {came}"
            if not self.troubled:
                assert sum(not dup for _, dup, _ in came) < 2, f"A7: the will of {life} came to {watcher} {came}"
            if came:
                self._judge_time(life, watcher, came[0][0])

    def _judge_time(self, life: Life, watcher: WillClient, came_us: int) -> None:
        """A will does not come before its delay is over, unless the end of the session brings it."""
        ledger = self.ledger
        follower = next((one for one in ledger.of(life.client) if one.number > life.number and not one.refused), None)
        if follower is None or follower.asked_us > came_us:
            due_us = ledger.end_low_us(life) + life.wait_us
            assert came_us >= due_us - 5 * MILLISECOND, f"A7: the will of {life} came to {watcher} early"
            if life.ended_us > self.calm_us:
                late_us = life.ended_us + life.wait_us + SOON_US
                assert came_us <= late_us, f"A7: the will of {life} came to {watcher} at {came_us} late"

    def _judge_retained(self, topic: str) -> None:
        """A8: the retained will of a topic is the last one, as far as the clients can know which that is."""
        reader = WillClient(self.cluster, self.ledger, f"reader of {topic}", self.rng)
        reader.keep()
        reader.filters = {topic: 1}
        self.clients.append(reader)
        reader.connect(self.rng.choice(list(self.cluster.sites)))
        self._admit([reader])
        reader.subscribe(topic)
        self._rest(2)
        found = max([number for number, came in reader.wills.items() if came[0][2]], default=0)
        lives = [one for one in self.ledger.lives if one.will is not None and one.will.topic == topic.encode()]
        allowed = {0}
        for life in lives:
            outcome = self.ledger.outcome(life)
            low_us = self.ledger.end_low_us(life)
            if outcome == YES:
                allowed = {number for number in allowed if number and self._came_by_us(number) >= low_us}
            if outcome != NO:
                allowed.add(life.number)
        assert found in allowed, f"A8: {topic} is {found} and not of {allowed}"

    def _came_by_us(self, number: int) -> int:
        """When a will was certainly published."""
        times = [watcher.wills[number][0][0] for watcher in self.watchers if number in watcher.wills]
        return min(times, default=self.now)


@pytest.mark.parametrize("seed", DRAWN)
def test_wills_come_once_and_sessions_end_in_time_while_leaderships_move(seed: int) -> None:
    WillRun(seed).judged(pressed=False)


@pytest.mark.parametrize("seed", PRESSED)
def test_wills_come_once_when_leaderships_are_handed_on_before_they_have_begun(seed: int) -> None:
    WillRun(seed, SCARCE).judged(pressed=True)
