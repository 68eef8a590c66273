// MQTT.js as a client: subscribe, publish nine messages of QoS 0, 1 and 2 in turn, print what came back as JSON.
const job = JSON.parse(process.argv[2]);
const fs = require("fs");
const mqtt = require(job.modules + "/mqtt");

const client = mqtt.connect(job.url, {
  protocolVersion: job.version,
  ca: fs.readFileSync(job.ca),
  reconnectPeriod: 0,
});
const found = { messages: [], properties: null };

client.on("error", (error) => {
  console.error(String(error));
  process.exit(1);
});
client.on("close", () => {
  console.error("closed by the server");
  process.exit(1);
});
client.on("message", (_topic, payload, packet) => {
  found.messages.push([payload.toString(), packet.qos]);
  if (packet.properties && packet.properties.contentType) {
    const { contentType, userProperties } = packet.properties;
    found.properties = { contentType, userProperties: { ...userProperties } };
  }
  if (found.messages.length === 9) {
    console.log(JSON.stringify(found));
    process.exit(0);
  }
});
client.on("connect", async () => {
  await client.subscribeAsync(job.topic, { qos: 2 });
  for (let number = 0; number < 9; number++) {
    const properties = job.version === 5 ? { contentType: "text/plain", userProperties: { k: "v" } } : undefined;
    await client.publishAsync(job.topic, "m" + number, { qos: number % 3, properties });
  }
});
setTimeout(() => process.exit(2), 20000);
