"""The client for operators: which node is asked, what each refusal becomes."""

from __future__ import annotations

import socket
import threading

import pytest

from folkmoot.client.admin import AdminClient
from folkmoot.client.problem import BadAnswer, BadQuestion, NoSuchNode, NotAuthorised, NotPossible, Unreachable
from folkmoot.status.picture import EXCLUDED, WAITING
from tests.harness.picture import Drawn, Shown

TOKEN = "a-token-of-more-than-sixteen-characters"
NOBODY = "127.0.0.1:9"


def drawn() -> Drawn:
    return Drawn([["a", "b", "c"], ["b", "a"]], members="ab", known="abc")


def test_every_question_is_answered() -> None:
    picture = drawn()
    picture.receipts = [{"merged": 3}]
    with Shown(picture) as shown:
        client = AdminClient(shown.place)
        assert client.status()["counter"] == 7
        assert [entry["leader"] for entry in client.partitions()] == ["a", "b"]
        assert client.where_client("x/y z?&")["name"] == "x/y z?&"
        assert client.where_topic("ä/b")["name"] == "ä/b"
        assert client.safe_to_stop("b")["safe"] is False
        assert client.heals() == [{"merged": 3}]
        client.evict("b")
        client.forget("c")
        client.close()
    assert picture.orders == [("evict", "b"), ("forget", "c")]


def test_refusals_say_why() -> None:
    with Shown(drawn()) as shown:
        client = AdminClient(shown.place)
        with pytest.raises(NoSuchNode, match="no node 'xy'; there are: a, b, c"):
            client.safe_to_stop("xy")
        for name in ("x", "../b", "x/y", "ü b"):
            with pytest.raises(NoSuchNode, match=f"no node '{name}'; there are: a, b, c"):
                client.evict(name)
            with pytest.raises(NoSuchNode, match=f"no node '{name}'; there are: a, b, c"):
                client.safe_to_stop(name)
        with pytest.raises(NotPossible, match="evict it first"):
            client.forget("b")
        with pytest.raises(BadQuestion, match="wildcard"):
            client.where_topic("#")
        client.close()


def test_the_token_is_sent_and_its_lack_is_told() -> None:
    with Shown(drawn(), TOKEN) as shown:
        with pytest.raises(NotAuthorised, match="401"):
            AdminClient(shown.place).status()
        with pytest.raises(NotAuthorised, match="403"):
            AdminClient(shown.place, "wrong").status()
        assert AdminClient(shown.place, TOKEN).status()["node"] == "a"


def test_a_dead_node_and_one_that_hangs_are_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging, Shown(drawn()) as shown:
        hung = f"127.0.0.1:{hanging.getsockname()[1]}"
        client = AdminClient([NOBODY, hung, shown.place], timeout_s=0.1)
        assert client.status()["node"] == "a"
        client.evict("b")
        client.close()


def test_the_owner_is_asked_for_where_it_is_known() -> None:
    ignorant = drawn()
    ignorant.owners = {}
    with Shown(ignorant) as first, Shown(drawn()) as second:
        client = AdminClient([first.place, NOBODY, second.place])
        assert client.where_client("online")["owner"] == "c"
        assert client.where_client("offline")["owner"] is None
        client.close()


def test_orders_go_to_a_member() -> None:
    out, inside = drawn(), drawn()
    out.now_state = EXCLUDED
    with Shown(out) as first, Shown(inside) as second:
        AdminClient([first.place, second.place]).evict("b")
        assert (out.orders, inside.orders) == ([], [("evict", "b")])
        with pytest.raises(Unreachable, match=r"503 \(node a is not up in the cluster \(excluded\): ask another one\)"):
            AdminClient(first.place, patience_s=0.01).forget("c")


def test_the_status_is_that_of_a_member_if_there_is_one() -> None:
    out, waiting, inside = drawn(), drawn(), drawn()
    out.now_state, waiting.now_state = EXCLUDED, WAITING
    passed: list[tuple[str, str]] = []
    with Shown(out) as first, Shown(waiting) as second, Shown(inside) as third:
        places = [first.place, NOBODY, second.place, third.place]
        client = AdminClient(places, on_pass=lambda url, why: passed.append((url, why)))
        assert client.status()["state"] == "member"
        assert passed == [(f"http://{first.place}", "is not up in the cluster (excluded)")]
        assert client.status()["state"] == "member"
        assert len(passed) == 1, "the one that has answered is asked first"
        client.close()
        assert AdminClient([first.place, second.place], patience_s=0.01).status()["state"] == "excluded"
        assert AdminClient(first.place).status()["state"] == "excluded"


def test_what_a_node_knows_that_was_left_out_is_not_taken_for_the_truth() -> None:
    out, inside = drawn(), drawn()
    out.now_state = EXCLUDED
    with Shown(out) as first, Shown(inside) as second:
        client = AdminClient([first.place, second.place])
        assert len(client.partitions()) == 2
        client.close()
        lone = AdminClient(first.place, patience_s=0.01)
        for ask in (lone.partitions, lambda: lone.safe_to_stop("b"), lambda: lone.where_client("x")):
            with pytest.raises(Unreachable, match=r"^http://\S+ answered 503 \(node a is not up") as raised:
                ask()
            assert "Check that the node runs" not in str(raised.value)
        lone.close()


def test_what_is_no_admin_address_is_named() -> None:
    for place in ("nonsense", "10.0.0.1", "::1"):
        with pytest.raises(ValueError, match="is not an address of a node: give HOST:PORT"):
            AdminClient(place)
    assert AdminClient("https://moot.example").nodes.urls == ["https://moot.example"], "a door with a usual port"
    with socket.create_server(("127.0.0.1", 0)) as server:  # as a broker does with what is no CONNECT

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(Unreachable, match="the server at this address does not speak HTTP"):
            AdminClient(f"127.0.0.1:{server.getsockname()[1]}", patience_s=0.01).status()
        thread.join(10)


def test_when_nobody_answers_all_are_named() -> None:
    both = r"http://127\.0\.0\.1:9: the connection is refused; http://127\.0\.0\.1:10: the connection is refused"
    with pytest.raises(Unreachable, match=both):
        AdminClient([NOBODY, "127.0.0.1:10"], patience_s=0.01).status()


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="ftp"):
        AdminClient("ftp://x")


def test_another_service_on_that_port_is_told() -> None:
    from tests.harness.streamnode import Shelf, StreamNode

    with StreamNode(Shelf()) as other, pytest.raises(BadAnswer, match="admin address of a Folkmoot node"):
        AdminClient(other.url).status()
