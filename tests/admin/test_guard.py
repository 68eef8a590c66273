from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from folkmoot.admin.guard import Guard
from folkmoot.runtime.origin import HostRules
from tests.harness.asgi import Reply, ask

OWN = "localhost:8080"


async def done(_request: Request) -> Response:
    return PlainTextResponse("done")


INNER = Starlette(routes=[Route("/x", done, methods=["GET", "POST", "PUT", "DELETE"])])
ALONE = Guard(INNER, HostRules("127.0.0.1", ["broker.example"]))
WITH_TOKEN = Guard(INNER, None)


def reply(guard: Guard, method: str = "GET", **headers: str) -> Reply:
    return ask(guard, "/x", headers={name.replace("_", "-"): value for name, value in headers.items()}, method=method)


@pytest.mark.parametrize("host", [OWN, "127.0.0.1:8080", "broker.example", "[::1]:8080"])
def test_own_names_are_answered(host: str) -> None:
    assert reply(ALONE, host=host).status == 200


def test_a_client_without_host_is_no_browser() -> None:
    assert reply(ALONE).status == 200


def test_another_name_is_misdirected_and_the_answer_says_what_to_set() -> None:
    answer = reply(ALONE, host="evil.example:8080")
    assert answer.status == 421
    assert "admin.hosts" in answer.json()["error"]
    assert "evil.example" in answer.json()["error"]


def test_with_a_token_every_name_is_answered() -> None:
    assert reply(WITH_TOKEN, host="metrics.internal:8080").status == 200


@pytest.mark.parametrize("guard", [ALONE, WITH_TOKEN])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "origin": f"http://{OWN}"},
    ],
)
def test_a_page_of_another_origin_gives_no_orders(guard: Guard, method: str, headers: dict[str, str]) -> None:
    assert reply(guard, method, host=OWN, **headers).status == 403


@pytest.mark.parametrize(
    "headers", [{}, {"origin": f"http://{OWN}"}, {"sec_fetch_site": "none"}, {"sec_fetch_site": "same-origin"}]
)
def test_orders_of_the_command_line_and_of_the_same_origin_pass(headers: dict[str, str]) -> None:
    assert reply(ALONE, "POST", host=OWN, **headers).status == 200


def test_a_page_of_another_origin_embeds_nothing() -> None:
    foreign = {"host": OWN, "sec_fetch_site": "cross-site"}
    assert reply(ALONE, **foreign, sec_fetch_mode="no-cors").status == 403
    assert reply(ALONE, **foreign, sec_fetch_mode="navigate").status == 200, "a link may lead here"


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
def test_no_answer_lets_another_origin_read_it(method: str) -> None:
    preflight = {"access_control_request_method": "POST", "origin": "https://evil.example"}
    answer = reply(ALONE, method, host=OWN, **preflight)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"
