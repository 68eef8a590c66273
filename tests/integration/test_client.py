"""Other people's clients over every transport: what they publish is what they receive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import shutil
import ssl
import subprocess
import uuid
from pathlib import Path
from typing import Any

import aiomqtt
import gmqtt  # type: ignore[import-untyped]
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.integration.serving import CERTIFICATES, Serving, client_context

ROOT = Path(__file__).resolve().parents[2]
TRANSPORTS = ["mqtt", "mqtts", "ws", "wss"]
VERSIONS = {"3.1": paho.MQTTv31, "3.1.1": paho.MQTTv311, "5": paho.MQTTv5}


def topic() -> str:
    return f"client/{uuid.uuid4().hex}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_paho(serving: Serving, transport: str, version: str) -> None:
    name = topic()
    arrived: queue.Queue[Any] = queue.Queue()
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=uuid.uuid4().hex[:20],
        protocol=VERSIONS[version],
        transport="websockets" if transport.startswith("ws") else "tcp",
    )
    if transport in ("mqtts", "wss"):
        client.tls_set_context(client_context())
    if transport.startswith("ws"):
        client.ws_set_options(path="/mqtt")

    def on_connect(*_: object) -> None:
        client.subscribe(name, 2)

    client.on_connect = on_connect
    client.on_subscribe = lambda *_: arrived.put("subscribed")
    client.on_message = lambda _client, _data, message: arrived.put((message.payload, message.qos, message.properties))
    client.connect("localhost" if transport in ("mqtts", "wss") else "127.0.0.1", serving.port(transport))
    client.loop_start()
    try:
        assert arrived.get(timeout=60) == "subscribed"
        properties = None
        if version == "5":
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.ContentType = "text/plain"
            properties.UserProperty = [("a", "1"), ("a", "2")]
        large = bytes(range(256)) * 300
        for qos, payload in ((0, b"zero"), (1, b"one"), (2, large)):
            client.publish(name, payload, qos, properties=properties).wait_for_publish(10)
        received = [arrived.get(timeout=60) for _ in range(3)]
        assert [(payload, qos) for payload, qos, _ in received] == [(b"zero", 0), (b"one", 1), (large, 2)]
        if version == "5":
            assert all(found.ContentType == "text/plain" for _, _, found in received)
            assert all(found.UserProperty == [("a", "1"), ("a", "2")] for _, _, found in received)
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_aiomqtt(serving: Serving, transport: str) -> None:
    async def talk() -> list[tuple[bytes, int]]:
        name = topic()
        async with aiomqtt.Client(
            "localhost" if transport in ("mqtts", "wss") else "127.0.0.1",
            serving.port(transport),
            protocol=aiomqtt.ProtocolVersion.V5,
            transport="websockets" if transport.startswith("ws") else "tcp",
            websocket_path="/mqtt",
            tls_context=client_context() if transport in ("mqtts", "wss") else None,
        ) as client:
            await client.subscribe(f"{name}/+", 1)
            for number in range(20):
                await client.publish(f"{name}/{number}", str(number), qos=1)
            found = []
            async for message in client.messages:
                found.append((bytes(message.payload), message.qos))
                if len(found) == 20:
                    return found
        raise AssertionError("the connection ended")

    assert asyncio.run(asyncio.wait_for(talk(), 20)) == [(str(number).encode(), 1) for number in range(20)]


@pytest.mark.parametrize("transport", ["mqtt", "mqtts"])
def test_gmqtt(serving: Serving, transport: str) -> None:
    async def talk() -> list[tuple[bytes, int]]:
        name = topic()
        loop = asyncio.get_running_loop()
        subscribed, done = loop.create_future(), loop.create_future()
        found: list[tuple[bytes, int]] = []

        def on_message(_client: Any, _topic: str, payload: bytes, qos: int, _properties: Any) -> int:
            found.append((bytes(payload), qos))
            if len(found) == 30:
                done.set_result(None)
            return 0

        client = gmqtt.Client(uuid.uuid4().hex[:20], clean_session=True)
        client.on_message = on_message
        client.on_subscribe = lambda *_: subscribed.done() or subscribed.set_result(None)
        secure = client_context() if transport == "mqtts" else False
        await client.connect("localhost" if secure else "127.0.0.1", serving.port(transport), ssl=secure)
        client.subscribe(name, qos=2)
        await subscribed
        for number in range(30):
            client.publish(name, str(number), qos=number % 3)
        await done
        with contextlib.suppress(ssl.SSLError):  # asyncio's client end wants no byte behind its own close
            await client.disconnect()
        return found

    found = asyncio.run(asyncio.wait_for(talk(), 20))
    assert sorted(found) == sorted((str(number).encode(), number % 3) for number in range(30))


@pytest.mark.parametrize("transport", ["mqtt", "mqtts"])
@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto-clients is not installed")
def test_mosquitto_pub_and_sub(serving: Serving, transport: str, version: str) -> None:
    name = topic()
    place = ["-h", "localhost" if transport == "mqtts" else "127.0.0.1", "-p", str(serving.port(transport))]
    place += ["-V", version]
    if transport == "mqtts":
        place += ["--cafile", str(CERTIFICATES / "ca.pem")]
    # Retained, so that it does not matter which of the two is faster.
    for number in range(3):
        publish = ["mosquitto_pub", *place, "-t", f"{name}/{number}", "-m", f"m{number}", "-q", str(number), "-r"]
        subprocess.run(publish, check=True, timeout=20)
    subscribe = ["mosquitto_sub", *place, "-t", f"{name}/#", "-q", "2", "-C", "3", "-F", "%t %p %q %r", "-W", "15"]
    output = subprocess.run(subscribe, check=True, timeout=20, capture_output=True, text=True).stdout
    assert sorted(output.splitlines()) == [f"{name}/{number} m{number} {number} 1" for number in range(3)]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("version", [4, 5])
def test_mqtt_js(serving: Serving, transport: str, version: int) -> None:
    modules = ROOT / "build" / "node" / "node_modules"
    if shutil.which("node") is None or not (modules / "mqtt").is_dir():
        pytest.skip("MQTT.js is not installed: run `make clients` (it needs npm)")
    host = "localhost" if transport in ("mqtts", "wss") else "127.0.0.1"
    url = f"{transport}://{host}:{serving.port(transport)}" + ("/mqtt" if transport.startswith("ws") else "")
    job = {
        "url": url,
        "version": version,
        "topic": topic(),
        "ca": str(CERTIFICATES / "ca.pem"),
        "modules": str(modules),
    }
    script = Path(__file__).with_name("mqtt_js.cjs")
    result = subprocess.run(
        ["node", str(script), json.dumps(job)], timeout=30, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["messages"] == [[f"m{number}", number % 3] for number in range(9)]
    if version == 5:
        assert found["properties"] == {"contentType": "text/plain", "userProperties": {"k": "v"}}
