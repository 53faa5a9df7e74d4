"""The limit: a bare aiohttp handler and a bare SQLite commit loop, nothing of Kubernetes.

It knows JSON documents under a path. It serves them over the same TLS and makes each write durable
(WAL, synchronous=FULL, group commit in a writer thread); it checks, defaults and forbids nothing
and keeps no history. Bare means what Python and aiohttp bring along: asyncio's own event loop and
the standard library's JSON. `--tuned` trades both for the faster ones that livevirt uses.
Run as `python sketch.py CERT.pem DB [--tuned]`; prints its port.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import sqlite3
import ssl
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import uvloop
from aiohttp import web


def plain_encode(obj: object) -> bytes:
    """Return compact JSON by the standard library."""
    return json.dumps(obj, separators=(",", ":")).encode()


class Sketch:
    def __init__(self, path: str, encode: Callable[[Any], bytes], decode: Callable[..., Any]):
        self.encode, self.decode = encode, decode
        self.reader = sqlite3.connect(path, isolation_level=None)
        self.reader.execute("PRAGMA journal_mode=WAL")
        self.reader.execute(
            "CREATE TABLE IF NOT EXISTS doc (name TEXT PRIMARY KEY, rev INTEGER, value BLOB)"
        )
        self.path = path
        self.revision = 0
        self.queue: queue.SimpleQueue = queue.SimpleQueue()
        self.loop = asyncio.get_running_loop()
        threading.Thread(target=self.commit, daemon=True).start()

    def commit(self) -> None:
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute("PRAGMA synchronous=FULL")
        while True:
            batch = [self.queue.get()]
            while not self.queue.empty():
                batch.append(self.queue.get())
            written = []
            db.execute("BEGIN IMMEDIATE")
            for name, obj, future in batch:
                self.revision += 1
                obj["metadata"]["resourceVersion"] = str(self.revision)
                value = self.encode(obj)
                db.execute(
                    "INSERT OR REPLACE INTO doc VALUES (?,?,?)", (name, self.revision, value)
                )
                written.append((future, value))
            db.execute("COMMIT")
            self.loop.call_soon_threadsafe(self.settle, written)

    def settle(self, written: list) -> None:
        for future, value in written:
            if not future.done():
                future.set_result(value)

    async def store(self, name: str, obj: dict) -> bytes:
        future = self.loop.create_future()
        self.queue.put((name, obj, future))
        return await future

    async def create(self, request: web.Request) -> web.Response:
        obj = self.decode(await request.read())
        body = await self.store(obj["metadata"]["name"], obj)
        return web.Response(status=201, body=body, content_type="application/json")

    async def get(self, request: web.Request) -> web.Response:
        row = self.reader.execute(
            "SELECT value FROM doc WHERE name=?", (request.match_info["name"],)
        ).fetchone()
        return web.Response(body=row[0], content_type="application/json")

    async def patch(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        row = self.reader.execute("SELECT value FROM doc WHERE name=?", (name,)).fetchone()
        obj = self.decode(row[0])
        for key, value in self.decode(await request.read()).items():
            obj[key].update(value)
        return web.Response(body=await self.store(name, obj), content_type="application/json")


async def serve(cert: str, path: str, tuned: bool) -> None:
    if tuned:
        sketch = Sketch(path, msgspec.json.Encoder().encode, msgspec.json.Decoder().decode)
    else:
        sketch = Sketch(path, plain_encode, json.loads)
    app = web.Application(client_max_size=1 << 22)
    app.router.add_post("/docs", sketch.create)
    app.router.add_get("/docs/{name}", sketch.get)
    app.router.add_patch("/docs/{name}", sketch.patch)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cert")
    parser.add_argument("database")
    parser.add_argument("--tuned", action="store_true", help="uvloop and msgspec")
    args = parser.parse_args()
    run = uvloop.run if args.tuned else asyncio.run
    run(serve(args.cert, args.database, args.tuned))


if __name__ == "__main__":
    main()
