"""A node with every kind of listener, shared by the tests of a file that do not disturb each other."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.integration.cluster_rig import Rig
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test of a cluster that has failed show what each node said last: it may not fail again."""
    report = yield
    rig = getattr(item, "funcargs", {}).get("rig")
    if report.when == "call" and report.failed and isinstance(rig, Rig):
        report.sections.append(("nodes", rig.log(80)))
    return report
