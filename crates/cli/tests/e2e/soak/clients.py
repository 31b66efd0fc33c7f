"""Clients of two proxies at the same pace, for a time; prints how their requests ended.

Arguments: seconds, and the addresses of the proxies.
"""

import asyncio
import collections
import hashlib
import json
import os
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, WebSocketException

PATIENCE = 20
seconds, *proxies = sys.argv[1:]
ends = asyncio.Event()


class Wrong(Exception):
    """A response that is not the application's."""


async def head(reader):
    text = await reader.readuntil(b"\r\n\r\n")
    lines = text.decode().lower().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:] if line)
    return int(lines[0].split()[1]), fields


async def ask(streams, method, path, body):
    reader, writer = streams
    text = f"{method} {path} HTTP/1.1\r\nhost: soak\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(text.encode() + body)
    status, fields = await head(reader)
    received = await reader.readexactly(int(fields["content-length"]))
    if status == 200 and received.decode() != hashlib.sha256(body).hexdigest():
        raise Wrong
    return status, fields.get("connection") == "close"


async def kept(proxy, counts, method, size):
    """Asks on one connection, a new one after each that ended."""
    streams = None

    async def once():
        nonlocal streams
        if streams and streams[0].at_eof():
            leave(streams)  # the proxy has closed it
            streams = None
        streams = streams or await open_streams(proxy)
        status, closes = await ask(streams, method, "/", os.urandom(size))
        if closes:
            leave(streams)
            streams = None
        return status

    def failed():
        nonlocal streams
        leave(streams)
        streams = None

    await repeat(counts, once, failed, 0.05)


async def events(proxy, counts):
    async def once():
        streams = reader, writer = await open_streams(proxy)
        try:
            writer.write(b"GET /events HTTP/1.1\r\nhost: soak\r\nconnection: close\r\n\r\n")
            status, _ = await head(reader)
            rest = await reader.read(-1)
            if status == 200 and not rest.endswith(b"0\r\n\r\n"):
                raise ConnectionError
            return status
        finally:
            leave(streams)

    await repeat(counts, once, lambda: None, 0.1)


async def messages(proxy, counts):
    async def once():
        async with connect(f"ws://{proxy}/", proxy=None, close_timeout=1) as socket:
            for number in range(40):
                await socket.send(str(number))
                if await socket.recv() != str(number):
                    raise Wrong
                await asyncio.sleep(0.05)
        return 101

    await repeat(counts, once, lambda: None, 0.1)


async def open_streams(proxy):
    host, port = proxy.split(":")
    return await asyncio.open_connection(host, int(port))


def leave(streams):
    if streams:
        streams[1].close()


async def repeat(counts, once, failed, pause):
    loop = asyncio.get_running_loop()
    due = loop.time()
    while not ends.is_set():
        try:
            counts[str(await asyncio.wait_for(once(), PATIENCE))] += 1
        except InvalidStatus as refused:
            counts[str(refused.response.status_code)] += 1
        except Wrong:
            counts["wrong"] += 1
            failed()
        except (OSError, EOFError, TimeoutError, WebSocketException):
            counts["cut"] += 1
            failed()
        # The same pace for a proxy that answers later.
        due = max(due + pause, loop.time())
        await asyncio.sleep(due - loop.time())


async def main():
    seen, clients = [], []
    for proxy in proxies:
        kinds = {name: collections.Counter() for name in ("get", "post", "events", "messages")}
        seen.append(kinds)
        for _ in range(4):
            clients += [
                kept(proxy, kinds["get"], "GET", 0),
                kept(proxy, kinds["post"], "POST", 50_000),
                events(proxy, kinds["events"]),
                messages(proxy, kinds["messages"]),
            ]
    asyncio.get_running_loop().call_later(float(seconds), ends.set)
    await asyncio.gather(*clients)
    print(json.dumps(seen))


asyncio.run(main())
