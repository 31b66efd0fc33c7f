// Calls a method of each kind, and one more often than its limit allows.
const assert = require("assert");
const fs = require("fs");
const grpc = require("@grpc/grpc-js");

const [port, authority] = process.argv.slice(2);
const same = (bytes) => bytes;
const kinds = { Unary: [false, false], Few: [false, false], Down: [false, true], Up: [true, false], Chat: [true, true] };
const methods = {};
for (const [name, [requestStream, responseStream]] of Object.entries(kinds)) {
  methods[name] = {
    path: `/demo.Echo/${name}`,
    requestStream,
    responseStream,
    requestSerialize: same,
    requestDeserialize: same,
    responseSerialize: same,
    responseDeserialize: same,
  };
}
const Client = grpc.makeGenericClientConstructor(methods, "demo.Echo");
const credentials = grpc.credentials.createSsl(fs.readFileSync(authority));
const client = new Client(`localhost:${port}`, credentials);
const options = () => ({ deadline: Date.now() + 20000 });
const promise = (start) =>
  new Promise((resolve, reject) => start((error, value) => (error ? reject(error) : resolve(value))));
const unary = (name) => promise((done) => client[name](Buffer.from("hello"), new grpc.Metadata(), options(), done));
const text = (messages) => messages.map(String);

async function main() {
  assert.equal(String(await unary("Unary")), "hello");

  const down = [];
  for await (const message of client.Down(Buffer.from("n"), new grpc.Metadata(), options())) down.push(message);
  assert.deepEqual(text(down), ["n0", "n1", "n2"]);

  const whole = await promise((done) => {
    const up = client.Up(new grpc.Metadata(), options(), done);
    up.write(Buffer.from("a"));
    up.write(Buffer.from("b"));
    up.end();
  });
  assert.equal(String(whole), "a+b");

  // Each message is sent after the answer to the one before.
  const chat = client.Chat(new grpc.Metadata(), options());
  let number = 0;
  chat.write(Buffer.from("0"));
  for await (const message of chat) {
    assert.equal(String(message), String(number));
    number += 1;
    if (number < 5) chat.write(Buffer.from(String(number)));
    else chat.end();
  }
  assert.equal(number, 5);

  const refused = await unary("Few").then(() => null, (error) => error);
  assert.equal(refused.code, grpc.status.RESOURCE_EXHAUSTED, String(refused));
  assert.ok(refused.metadata.get("grpc-retry-pushback-ms").length === 1, String(refused.metadata.toJSON()));
  assert.ok(refused.metadata.get("grpc-status-details-bin").length === 1);
  client.close();
  console.log("done");
}

main();
