"""What a client makes of the status of an answer (RFC 9110 section 15, and what the API promises)."""

from __future__ import annotations

import json

import pytest

from folkmoot.client.nodes import Answer
from folkmoot.client.problem import BadAnswer, BadQuestion, NoSuchStream, NotAuthorised, StreamProblem


def answer(status: int, data: bytes = b'{"error": "no such thing"}') -> Answer:
    return Answer("http://n1:8080", status, {}, data)


def test_an_answer_that_is_one_comes_back() -> None:
    found = answer(200, json.dumps({"a": 1}).encode())
    assert found.checked({400: BadQuestion}) is found


@pytest.mark.parametrize(
    ("status", "problem"),
    [(400, BadQuestion), (404, NoSuchStream), (401, NotAuthorised), (403, NotAuthorised), (500, BadAnswer)],
)
def test_another_status_is_a_problem_that_names_the_node(status: int, problem: type[StreamProblem]) -> None:
    with pytest.raises(problem, match="http://n1:8080"):
        answer(status).checked({400: BadQuestion, 404: NoSuchStream})


def test_a_problem_says_what_the_node_says() -> None:
    with pytest.raises(BadQuestion, match="no such thing"):
        answer(400).checked({400: BadQuestion})
    with pytest.raises(BadQuestion, match="no reason given"):
        answer(400, b"{}").checked({400: BadQuestion})


def test_who_answers_with_something_else_is_perhaps_no_node() -> None:
    with pytest.raises(BadAnswer, match="is this the admin address of a Folkmoot node"):
        answer(502, b"<html>Bad Gateway</html>").checked({400: BadQuestion})
