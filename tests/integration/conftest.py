"""A node with every kind of listener, shared by the tests of a file that do not disturb each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.serving import Serving, tls_arguments

ANY = "127.0.0.1:0"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A node on tcp, tls, ws and wss with an admin server and a stream."""
    listeners = ["--mqtt", ANY, "--mqtts", ANY, "--ws", ANY, "--wss", ANY, "--admin", ANY]
    data = tmp_path_factory.mktemp("node") / "data"
    with Serving(data, *listeners, "--stream", "kept=kept/#", *tls_arguments()) as node:
        yield node
        assert node.stop() == 0, node.log()
