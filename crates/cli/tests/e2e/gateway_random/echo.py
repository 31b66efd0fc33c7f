"""Answers as `echo.js` does, with the request as Python's own server has read it."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def body(self):
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0))), []
        body = bytearray()
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            assert self.rfile.readline() == b"\r\n"
        trailers = []
        while (line := self.rfile.readline()) != b"\r\n":
            name, value = line.decode("latin-1").split(":", 1)
            trailers.append([name, value.strip()])
        return bytes(body), trailers

    def answer(self):
        body, trailers = self.body()
        fields = [[name, value] for name, value in self.headers.items()]
        seen = {"line": self.requestline, "fields": fields, "trailers": trailers, "bytes": len(body)}
        status = int(self.headers["x-status"])
        has_length = status not in (204, 304)
        bodyless = not has_length or self.command == "HEAD"
        chunked = self.headers["x-framing"] == "chunked"
        self.send_response_only(status, "X")
        self.send_header("x-seen", json.dumps(seen, separators=(",", ":")))
        for name, value in fields:
            if name.lower().startswith("y-"):
                self.send_header(name, value)
        if not bodyless and chunked and trailers:
            self.send_header("trailer", "x-end")
        if not bodyless and chunked:
            self.send_header("transfer-encoding", "chunked")
        elif has_length and not chunked:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if bodyless:
            return
        if not chunked:
            self.wfile.write(body)
            return
        for part in (body[:1], body[1:]):
            if part:
                self.wfile.write(b"%X\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n")
        for name, value in trailers:
            self.wfile.write(f"{name}: {value}\r\n".encode("latin-1"))
        self.wfile.write(b"\r\n")

    def log_message(self, *_):
        pass


ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
