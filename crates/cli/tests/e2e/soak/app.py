"""The application of the gateway's soak: bodies, server-sent events and a WebSocket."""

import asyncio
import hashlib
import sys

import uvicorn


async def read(receive):
    body = hashlib.sha256()
    while True:
        message = await receive()
        body.update(message.get("body", b""))
        if not message.get("more_body"):
            return body.hexdigest().encode()


async def http(scope, receive, send):
    events = scope["path"] == "/events"
    body = b"" if events else await read(receive)
    fields = [(b"content-type", b"text/event-stream" if events else b"text/plain")]
    if not events:
        fields.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    for number in range(20 if events else 0):
        part = f"data: {number}\n\n".encode()
        await send({"type": "http.response.body", "body": part, "more_body": True})
        await asyncio.sleep(0.1)
    await send({"type": "http.response.body", "body": body})


async def application(scope, receive, send):
    if scope["type"] == "http":
        await http(scope, receive, send)
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})


uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")
