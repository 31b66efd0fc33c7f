"""An application in uvicorn: each response states how many tokens it has used."""

import sys

import uvicorn


async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    json = scope["path"] == "/tokens"
    body = b'{"usage": {"total_tokens": 40}}' if json else b"uvicorn"
    kind = b"application/json" if json else b"text/plain"
    fields = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    status = 503 if scope["path"] == "/down" else 200
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
