// Answers each request with its own body, its `y-` fields, and the status in `x-status`. `x-seen`
// is the request as Node's parser has read it.

const http = require("http");

const ascii = (text) =>
  text.replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const pairs = (raw) => {
  const list = [];
  for (let at = 0; at < raw.length; at += 2) list.push([raw[at], raw[at + 1]]);
  return list;
};

const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    const body = Buffer.concat(parts);
    const fields = pairs(request.rawHeaders);
    const trailers = pairs(request.rawTrailers);
    const line = `${request.method} ${request.url} HTTP/${request.httpVersion}`;
    const seen = ascii(JSON.stringify({ line, fields, trailers, bytes: body.length }));
    const answer = ["x-seen", seen];
    for (const [name, value] of fields) {
      if (name.toLowerCase().startsWith("y-")) answer.push(name, value);
    }
    const status = Number(request.headers["x-status"]);
    const bodyless = status === 204 || status === 304 || request.method === "HEAD";
    const chunked = request.headers["x-framing"] === "chunked";
    if (status !== 204 && status !== 304 && !chunked) answer.push("content-length", String(body.length));
    const trails = chunked && !bodyless && trailers.length > 0;
    if (trails) answer.push("trailer", "x-end");
    response.writeHead(status, answer);
    if (trails) response.addTrailers(trailers);
    response.end(bodyless ? undefined : body);
  });
});
server.keepAliveTimeout = 600_000;
server.listen(Number(process.argv[2]), "127.0.0.1");
