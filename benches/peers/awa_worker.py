"""awa on the work of `make bench`: `fill N`, then `drain N` with eight jobs at a time."""

import asyncio
import os
import sys
from dataclasses import dataclass

import awa


@dataclass
class Shell:
    number: int


async def main(what: str, count: int) -> None:
    url = os.environ["DATABASE_URL"]
    if what == "fill":
        await awa.migrate(url)
    client = awa.AsyncClient(url)
    done = asyncio.Event()
    ended = 0

    @client.task(Shell, queue="shell")
    async def shell(job):
        nonlocal ended
        process = await asyncio.create_subprocess_exec("sh", "-c", "true", stdin=asyncio.subprocess.DEVNULL)
        assert await process.wait() == 0
        ended += 1
        if ended == count:
            done.set()

    if what == "fill":
        await client.insert_many_copy([Shell(number) for number in range(count)], queue="shell")
    else:
        await client.start([("shell", 8)])
        await done.wait()
        await client.shutdown()


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
