// Stands behind the snippet of the guide, whose `call` and `complete` it uses.
const assert = require("assert");
const [step, decision] = process.argv.slice(2);
const model = async (prompt) => ({ text: prompt.toUpperCase(), tokens: Number(prompt.split(" ")[0]) });
const reserve = (user, tokens) =>
  call("Check", { request: { path: "/complete" }, attributes: { user, max_tokens: tokens } });
const remaining = async (user) => (await reserve(user, 0)).limits[0].remaining;
const failure = async (method, message) => {
  const error = await call(method, message).then(() => assert.fail("it passes"), (error) => error);
  return [error.code, error.details];
};

async function settle() {
  // Under, as the guide does it.
  assert.equal(await complete("ann", "63 tokens"), "63 TOKENS");
  assert.equal(await remaining("ann"), 937);

  // Over, and once only.
  const over = await reserve("ann", 100);
  assert.deepEqual([over.allowed, over.limits[0].remaining, over.expires_in_ms], [true, 837, 120_000]);
  for (const done of ["corrected", "repeated", "repeated"]) {
    assert.deepEqual(await call("Report", { decision: over.decision, costs: { "llm-tokens": 337 } }), { done });
    assert.equal(await remaining("ann"), 600);
  }

  // A cost of 0 gives all of it back.
  const unused = await reserve("ann", 600);
  assert.equal(await remaining("ann"), 0);
  assert.match(await complete("ann", "1 token"), /^try again in [1-9][0-9]* ms$/);
  await call("Report", { decision: unused.decision, cost: 0 });
  assert.equal(await remaining("ann"), 600);

  // By the status of a login.
  const login = { request: { method: "POST", path: "/login", headers: { "X-User": "ann" } } };
  const failed = await call("Check", login);
  assert.deepEqual(failed.limits[0].key, ["header:x-user=ann"]);
  await call("Report", { decision: failed.decision, status: 401 });
  const given = await call("Check", login);
  assert.equal(given.limits[0].remaining, 1);
  await call("Report", { decision: given.decision, status: 500 });
  assert.equal((await call("Check", login)).limits[0].remaining, 1);

  const status = grpc.status;
  assert.deepEqual(await failure("Report", { decision: over.decision }), [
    status.INVALID_ARGUMENT,
    "RK0503: the report says nothing; send `status`, `outcome`, `cost` or `costs`",
  ]);
  assert.deepEqual(await failure("Report", { decision: "4711", cost: 1 }), [
    status.INVALID_ARGUMENT,
    'RK0503: `decision`: invalid value: string "4711", expected a decision id that a check returned',
  ]);
  // An id of the same form that no check has returned.
  const bytes = Buffer.from(over.decision, "base64url");
  bytes[1] ^= 1;
  const [code, details] = await failure("Report", { decision: bytes.toString("base64url"), cost: 1 });
  assert.equal(code, status.NOT_FOUND);
  assert.match(details, /^RK0590: /);
  assert.deepEqual(await failure("Check", { limits: ["llm-token"] }), [
    status.INVALID_ARGUMENT,
    "RK0504: `limits` names `llm-token`; did you mean `llm-tokens`?",
  ]);
  const [large] = await failure("Check", { attributes: { user: "x".repeat(65_536) } });
  assert.equal(large, status.RESOURCE_EXHAUSTED);
  return "done";
}

async function late() {
  const [code, details] = await failure("Report", { decision, cost: 63 });
  assert.deepEqual([code, details.split(":")[0]], [grpc.status.NOT_FOUND, "RK0590"]);
  assert.equal(await remaining("bob"), 600);
  return "done";
}

const steps = { settle, late, reserve: async () => (await reserve("bob", 400)).decision };
steps[step]().then((shown) => {
  console.log(shown);
  limiter.close();
});
