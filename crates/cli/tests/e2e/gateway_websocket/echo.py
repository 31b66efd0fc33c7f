"""Returns each message of a WebSocket."""

import asyncio
import logging
import sys

from websockets.asyncio.server import serve

logging.disable(logging.CRITICAL)


async def echo(connection):
    async for message in connection:
        await connection.send(message)


async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1]), max_size=None, ping_interval=None):
        await asyncio.get_running_loop().create_future()


asyncio.run(main())
