// The host of the two programs beside it: runs them, and checks that the burst passes and the pace holds.
//
//   node wasm/run.mjs TARGET_DIRECTORY
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const target = process.argv[2];
const load = (path, imports) => new WebAssembly.Instance(new WebAssembly.Module(readFileSync(`${target}/${path}`)), imports).exports;

// Without a standard library: nothing is imported, and 10 a second pass after a burst of 3.
{
  const { passes } = load('wasm32v1-none/debug/no_std.wasm', {});
  assert.equal(passes(3, 100, 0), 3);
  assert.equal(passes(3, 101, 100), 101, 'at the pace, every request passes');
  assert.equal(passes(3, 1001, 10), 3 + 100, 'ten times the pace: 10 s grant 100');
}

// The calls of JavaScript that the tool wasm-bindgen would write, by their names without the hash. A
// value of JavaScript is a number for the program.
const NONE = 0, FIRST = 1028, GLOBAL = FIRST, PERFORMANCE = FIRST + 1;
const glue = {
  __wbg_static_accessor_GLOBAL_THIS: () => GLOBAL,
  __wbg_static_accessor_GLOBAL: () => NONE,
  __wbg_static_accessor_SELF: () => NONE,
  __wbg_static_accessor_WINDOW: () => NONE,
  __wbg_performance: (of) => { assert.equal(of, GLOBAL); return PERFORMANCE; },
  __wbg_now: (...of) => (of[0] === PERFORMANCE ? performance.now() : Date.now()),
  __wbg___wbindgen_is_undefined: () => 0,
  __wbindgen_externref_statics_end: () => FIRST, // the numbers below have a fixed meaning
  __wbindgen_object_clone_ref: (value) => value,
  __wbindgen_object_drop_ref: () => {},
};
const call = (name) => glue[name.replace(/_[0-9a-f]{16}$/, '')] ?? (() => assert.fail(`called ${name}`));
const imports = new Proxy({}, { get: () => new Proxy({}, { get: (_, name) => call(name) }) });
const limits = load('wasm32-unknown-unknown/debug/limiters.wasm', imports);

// A clock that the host sets.
for (const [check, who] of [[limits.check, 'one limit'], [() => limits.check_key(7), 'a key'], [() => limits.check_key(8), 'another']]) {
  const answers = (times) => Array.from({ length: times }, check);
  limits.set_millis(1_000);
  assert.deepEqual(answers(5), [0, 0, 0, 100, 100], who);
  limits.set_millis(1_099);
  assert.deepEqual(answers(2), [1, 1], who);
  limits.set_millis(1_100);
  assert.deepEqual(answers(2), [0, 100], who);
  limits.set_millis(1_350);
  assert.deepEqual(answers(3), [0, 0, 50], who);
}

// JavaScript's clock: 10 a second in real time, never earlier.
{
  const start = performance.now();
  let passed = 0;
  while (passed < 8) {
    const wait = limits.check_by_the_system_clock();
    if (wait === 0) passed += 1;
    else await sleep(wait);
  }
  const taken = performance.now() - start;
  assert.ok(taken >= 499, `3 at once and 5 more took ${taken} ms`);
}
console.log('WebAssembly: three clocks, each burst and pace');
