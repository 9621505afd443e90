"""procrastinate on the work of `make bench`: `fill N`, then `drain N` with eight jobs at a time."""

import asyncio
import os
import sys

import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))


@app.task(name="shell")
async def shell():
    process = await asyncio.create_subprocess_exec("sh", "-c", "true", stdin=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0


async def main(what: str, count: int) -> None:
    async with app.open_async():
        if what == "fill":
            await app.schema_manager.apply_schema_async()
            await shell.batch_defer_async(*({} for _ in range(count)))
        else:
            await app.run_worker_async(concurrency=8, wait=False, install_signal_handlers=False)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
