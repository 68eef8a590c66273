"""Drawn runs: subscriptions change their options while leaderships move (A1 to A5, A8).

No Local, Retain As Published, Retain Handling and Subscription Identifiers are drawn anew with each SUBSCRIBE. No
message may come that no options allow which may be in force, and in the end those of each SUBSCRIBE hold exactly.
"""

from __future__ import annotations

import pytest

from tests.harness.soak import seeds
from tests.simulated_cluster.drawn import OPEN, DrawnClient
from tests.simulated_cluster.drawn_options import ALWAYS, IF_NEW, Chooser
from tests.simulated_cluster.moving import SHAPES, Run

DRAWN = seeds(range(6), range(300))


class OptionRun(Run):
    """A run whose clients subscribe with options to what the others retain."""

    def _draw_clients(self) -> list[DrawnClient]:
        rng = self.rng
        count = rng.randint(2, 4)
        topics = [f"r/c{number}" for number in range(count)]
        clients: list[DrawnClient] = []
        for number in range(count):
            names = ["r/#"] if rng.random() < 0.4 else rng.sample(topics, rng.randint(1, count))
            clients.append(
                Chooser(
                    self.cluster,
                    self.ledger,
                    f"c{number}",
                    rng,
                    persistent=rng.random() < 0.75,
                    filters=[(name, rng.choice((1, 2, 2))) for name in names],
                    window=rng.choice((0, 0, 1, 3)),
                )
            )
        return clients

    def ask(self, client: DrawnClient) -> None:
        """Have a connected client publish, subscribe or unsubscribe, or be lazy from now on, or no more."""
        rng = self.rng
        chance = rng.random()
        name = rng.choice(list(client.filters))
        if chance < 0.5:
            client.publish(f"r/{client.name}", rng.choice((1, 2)), rng.random() < 0.6)
            self.note(f"{client} publishes {self.ledger.messages[len(self.ledger.messages)]}")
        elif chance < 0.8:
            client.subscribe(name)
            self.note(f"{client} subscribes: {client.requests[-1] if isinstance(client, Chooser) else name}")
        elif chance < 0.9:
            self.note(f"{client} unsubscribes from {name}")
            client.unsubscribe(name)
        else:
            client.lazy = not client.lazy

    # -- the end ------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        super()._judge()
        choosers = [client for client in self.clients if isinstance(client, Chooser) and client.state == OPEN]
        for client in choosers:
            self._judge_flags(client)
        for _ in range(3):
            for client in choosers:
                self._subscribe_at_rest(client)

    def _judge_flags(self, client: Chooser) -> None:
        if self.troubled:
            return  # the next leader may read retained messages anew
        for (number, session), count in client.flagged.items():
            message = self.ledger.messages[number]
            if session == client.sessions:
                assert count <= client.flags_allowed(message), f"{client} gets {message} {count} times with RETAIN"

    def _subscribe_at_rest(self, client: Chooser) -> None:
        """What is retained comes for a SUBSCRIBE as its Retain Handling says, and the same everywhere."""
        name = self.rng.choice(list(client.filters))
        if self.rng.random() < 0.3:
            client.unsubscribe(name)
            self._rest(1)
        was_there = client.sure.get(name)
        client.retained.clear()
        client.subscribe(name)
        self._rest(3)
        request = client.requests[-1]
        topics = [f"r/{other.name}" for other in self.clients if name in ("r/#", f"r/{other.name}")]
        wanted = request.handling == ALWAYS or (request.handling == IF_NEW and was_there is not True)
        for topic in topics:
            found = client.retained.get(topic, 0)
            is_own = topic == f"r/{client.name}" and request.no_local
            allowed = self.ledger.values(topic) if wanted and not is_own else {0}
            if request.handling == IF_NEW and was_there is None:
                allowed = {*allowed, 0}
            assert found in allowed, f"A8: {client} gets {found} for {request} and not one of {allowed}"


@pytest.mark.parametrize("seed", DRAWN)
def test_options_of_subscriptions_hold_while_leaderships_move(seed: int) -> None:
    OptionRun(seed, SHAPES).judged(pressed=False)
