// Prints what Express reads as the user: lines of a kind and a value, percent-encoded.
const express = require("express");
const cookies = require("cookie-parser");
const qs = require("qs");
const application = express();
application.use(cookies(), express.json({ strict: false }), express.urlencoded({ extended: true }));
// The values of a list; a map, whose keys are names, is no value.
const leaves = (value) => {
  if (value === undefined || value === null) return [];
  if (typeof value !== "object") return [value];
  return Object.keys(value).every((key) => /^\d+$/.test(key)) ? Object.values(value).flatMap(leaves) : [];
};
// What applications make of a number that a client wrote.
const numbers = (value) => leaves(value).flatMap((value) => [Number(value), parseInt(value, 10)]);
application.all("/{*rest}", (request, response) => {
  const query = request.url.split("?").slice(1).join("?");
  const extended = qs.parse(query, { allowPrototypes: true }); // `query parser`: "extended"
  const parameters = new URL(request.url, "http://host").searchParams;
  const { authorization = "", "x-user": user } = request.headers;
  const basic = /^basic +(.*)$/i.exec(authorization);
  const form = request.is("urlencoded") ? request.body : {};
  const lines = {
    query: [request.query.user, extended.user, parameters.getAll("user")],
    cookie: [request.cookies.sid],
    header: [user],
    basic: basic ? [Buffer.from(basic[1], "base64").toString()] : [],
    bearer: [/^bearer +(.*)$/i.exec(authorization)?.[1]],
    form: [form.user],
    params: [{ ...extended, ...request.body }.user],
    "query-name": [request.query.user_name, extended.user_name, parameters.getAll("user_name")],
    "cookie-name": [request.cookies.user_name],
    "form-name": [form.user_name],
    cost: request.is("json") ? numbers(request.body.n) : [],
    amount: numbers({ ...extended, ...form }.n),
    json: request.is("json") ? leaves(request.body.user).map((value) => JSON.stringify(value)) : [],
  };
  const print = ([kind, values]) => leaves(values).map((value) => `${kind} ${encodeURIComponent(value)}\n`);
  response.type("text").send(Object.entries(lines).flatMap(print).join(""));
});
application.listen(Number(process.argv[2]), "127.0.0.1");
