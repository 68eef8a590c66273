"""Requests to one of several equal nodes: if one fails, the next is asked; requests outlast the restart of a node.

Owns retries and back-off, and does not know the content of requests. All requests must be idempotent: a node may have
carried one out and died before it answered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

from folkmoot.client.problem import BadAnswer, NotAuthorised, StreamProblem, Unreachable

__all__ = ["Answer", "Nodes", "Attempts", "split_urls"]

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 2.0
CONNECT_S: Final = 5.0
# A node answers with a page of a few MiB at most. The timeout of a socket bounds each wait, not their sum.
ANSWER_BYTES_MAX: Final = 256 << 20
READ_BYTES: Final = 1 << 20
BODY_S: Final = 30.0
BODY_RATE_MIN: Final = 1024  # bytes per second, beyond BODY_S


class Answer:
    """Status, headers and body of one answer, and the address of the node that sent it."""

    def __init__(self, url: str, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.url = url
        self.status = status
        self.headers = headers
        self.data = data

    def checked(self, problems: Mapping[int, type[StreamProblem]]) -> Answer:
        """Return itself if the node did what was asked.

        `problems`: what the other statuses stand for. Raises that, NotAuthorised for a wrong token, and BadAnswer else.
        """
        if self.status == 200:
            return self
        if self.status in (401, 403):
            raise NotAuthorised(
                f"{self.url} refuses the token ({self.status}): give the token that the node was configured with"
            )
        problem = problems.get(self.status)
        if problem is None:
            raise BadAnswer(f"{self.url} answered {self.status}: {self.reason()}")
        raise problem(self.reason())

    def reason(self) -> str:
        """Return why the node did not do what was asked, and which node; raises BadAnswer when it does not say."""
        return f"{self.object().get('error', 'no reason given')} ({self.url})"

    def object(self) -> dict[str, Any]:
        """Return the body as a JSON object; raises BadAnswer if it is not one."""
        try:
            found = json.loads(self.data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise BadAnswer(
                f"{self.url} answered {self.status} with something that is not a JSON object: "
                "is this the admin address of a Folkmoot node?"
            )
        return found

    def number(self, header: str) -> int:
        """Return the integer in `header`; raises BadAnswer if there is none."""
        text = self.headers.get(header, "")
        if not text.isdigit():
            raise BadAnswer(f"{self.url} answered without the header {header}: is this the admin address of a node?")
        return int(text)


def split_urls(text: str) -> list[str]:
    """Return the addresses in a comma-separated list; `HOST:PORT` means http. Raises ValueError for an invalid one."""
    urls = []
    for part in text.split(","):
        url = part.strip()
        if not url:
            continue
        whole = "://" in url  # only an address with a scheme has a default port
        url = url if whole else "http://" + url
        try:
            parsed = urllib3.util.parse_url(url)
        except urllib3.exceptions.LocationParseError:
            parsed = urllib3.util.Url()
        if parsed.scheme not in ("http", "https") or not parsed.host or not (whole or parsed.port):
            raise ValueError(
                f"{part.strip()!r} is not an address of a node: give HOST:PORT, http://HOST:PORT or https://HOST:PORT"
            )
        urls.append(url.rstrip("/"))
    if not urls:
        raise ValueError("no address of a node: give http://HOST:PORT, or several separated by commas")
    return urls


class Nodes:
    """The nodes at `urls`. A request is repeated for `patience_s` seconds before it raises Unreachable.

    `first` is the index of the node to begin with, so that many readers are distributed over the nodes.
    `on_pass(url, why)` is called when a node refers to another one, and there is one. One instance belongs to one
    thread.
    """

    def __init__(
        self,
        urls: Sequence[str],
        token: str | None,
        patience_s: float,
        timeout_s: float = 30.0,
        first: int = 0,
        on_pass: Callable[[str, str], None] | None = None,
    ) -> None:
        self.urls = list(urls)
        self.patience_s = patience_s
        self.timeout_s = timeout_s
        self._at = first % len(self.urls)
        self._on_pass = on_pass
        self._pool = urllib3.PoolManager(num_pools=len(self.urls), maxsize=1)
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}

    @property
    def current(self) -> str:
        """The address for the next request: the last one that answered."""
        return self.urls[self._at]

    def get(self, path: str, fields: Mapping[str, str], extra_wait_s: float = 0.0) -> Answer:
        """Return the answer to GET `path`; `extra_wait_s` extends the time limit for the answer."""
        return self._ask("GET", path, fields, extra_wait_s)

    def post(self, path: str, fields: Mapping[str, str] | None = None) -> Answer:
        """Return the answer to POST `path` with an empty JSON object; `fields` are the query."""
        return self._ask("POST", path if not fields else f"{path}?{urlencode(fields)}", {}, 0.0)

    def send(self, method: str, path: str, body: bytes, content_type: str) -> Answer:
        """Return the answer to a request with a body, which must be idempotent."""
        return self._ask(method, path, {}, 0.0, body, content_type)

    def _ask(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str],
        extra_wait_s: float,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        attempts = Attempts(self)
        silent = False  # whether some node did not answer at all
        timeout = urllib3.Timeout(connect=min(CONNECT_S, self.timeout_s), read=self.timeout_s + extra_wait_s)
        whys: dict[str, str] = {}
        while True:
            url = self.urls[self._at]
            try:
                answer = self._once(method, url, path, fields, timeout, body, content_type)
                if answer.status < 500:
                    return answer
                if url not in whys:
                    self.passed(url, _complaint(answer))
                whys[url] = _complaint(answer)
            except urllib3.exceptions.HTTPError as error:
                whys[url] = _reason(error)
                silent = True
            if not attempts.next():
                raise Unreachable(self._unreachable(whys, silent))

    def _once(
        self,
        method: str,
        url: str,
        path: str,
        fields: Mapping[str, str],
        timeout: urllib3.Timeout,
        body: bytes | None,
        content_type: str,
    ) -> Answer:
        if body is None and method == "POST":
            body = b"{}"
        response = self._pool.request(
            method,
            url + path,
            fields=fields if body is None else None,
            body=body,
            headers=self._headers if body is None else {**self._headers, "content-type": content_type},
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=False,
        )
        try:
            return Answer(url, response.status, response.headers, body_of(response, url))
        except BaseException:
            response.close()  # what is left of the answer must not be taken for the next one
            raise
        finally:
            response.release_conn()

    def each(self, path: str, timeout_s: float) -> list[Answer]:
        """Return the answers of all nodes to GET `path`, each asked once, without those that come too late."""
        found = []
        for url in self.urls:
            try:
                found.append(self._once("GET", url, path, {}, urllib3.Timeout(timeout_s, timeout_s), None, ""))
            except urllib3.exceptions.HTTPError:
                continue
        return found

    def prefer(self, url: str) -> None:
        """Make this address the first to ask."""
        self._at = self.urls.index(url)

    def skip(self) -> None:
        """Make the next address the first to ask."""
        self._at = (self._at + 1) % len(self.urls)

    def passed(self, url: str, why: str) -> None:
        """Report that a node refers to another one, if there is another."""
        if self._on_pass is not None and len(self.urls) > 1:
            self._on_pass(url, why)

    def _unreachable(self, whys: Mapping[str, str], silent: bool) -> str:
        if not silent:
            return "; ".join(f"{url} {why}" for url, why in whys.items())
        told = "; ".join(f"{url}: {why}" for url, why in whys.items())
        return (
            f"no answer within {self.patience_s:g} s from {told}. Check that the node runs and that this is its admin "
            "address (`folkmoot serve --admin HOST:PORT`)"
        )

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()


def body_of(response: urllib3.BaseHTTPResponse, url: str) -> bytes:
    """Return the body of an answer; raises BadAnswer for one that no node sends: too large, or too slow to end."""
    parts: list[bytes] = []
    size = 0
    begun_s = time.monotonic()
    while part := response.read1(READ_BYTES):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise BadAnswer(f"{url} answered with more than {ANSWER_BYTES_MAX} bytes: is this the address of a node?")
        if time.monotonic() - begun_s > BODY_S + size / BODY_RATE_MIN:
            raise BadAnswer(f"{url} sends its answer too slowly ({size} bytes so far)")
    return b"".join(parts)


class Attempts:
    """The attempts of one request: each node once, then a pause, and again, until the time is over."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._until = time.monotonic() + nodes.patience_s
        self._pause_s = BACKOFF_MIN_S
        self._failures = 0

    def next(self) -> bool:
        """Go to the next node, because the current one could not answer; return False when the time is over."""
        self._nodes.skip()
        self._failures += 1
        if self._failures % len(self._nodes.urls):
            return True
        if time.monotonic() + self._pause_s > self._until:  # every node has failed once more
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, BACKOFF_MAX_S)
        return True


def _complaint(answer: Answer) -> str:
    """Return the error text of a node that cannot answer, or a default."""
    try:
        text = json.loads(answer.data).get("error", "")
    except (ValueError, AttributeError):
        text = ""
    return f"answered {answer.status}" + (f" ({text})" if text else "")


def _reason(error: urllib3.exceptions.HTTPError) -> str:
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "the connection is refused"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "the node is silent"
    if isinstance(error, urllib3.exceptions.ProtocolError):
        return "the server at this address does not speak HTTP"
    return f"{type(error).__name__}: {error}"
