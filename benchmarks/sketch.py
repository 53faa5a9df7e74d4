"""The limit: a bare aiohttp handler and a bare SQLite commit loop, nothing of Kubernetes.

It knows JSON documents under a path and a history to watch them by. It serves them over the same
TLS and makes each write durable (WAL, synchronous=FULL, group commit in a writer thread) with the
same libraries as livevirt does; it checks, defaults and forbids nothing.
Run as `python sketch.py CERT.pem DB`; prints its port.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import ssl
import sys
import threading

import msgspec
import uvloop
from aiohttp import web

encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


class Sketch:
    def __init__(self, path: str) -> None:
        self.reader = sqlite3.connect(path, isolation_level=None)
        self.reader.execute("PRAGMA journal_mode=WAL")
        self.reader.execute(
            "CREATE TABLE IF NOT EXISTS doc (name TEXT PRIMARY KEY, rev INTEGER, value BLOB)"
        )
        self.reader.execute(
            "CREATE TABLE IF NOT EXISTS history (rev INTEGER PRIMARY KEY, name TEXT, value BLOB)"
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
            db.execute("BEGIN IMMEDIATE")
            for name, obj, _ in batch:
                self.revision += 1
                obj["metadata"]["resourceVersion"] = str(self.revision)
                value = encode(obj)
                db.execute(
                    "INSERT OR REPLACE INTO doc VALUES (?,?,?)", (name, self.revision, value)
                )
                db.execute("INSERT INTO history VALUES (?,?,?)", (self.revision, name, value))
            db.execute("COMMIT")
            self.loop.call_soon_threadsafe(self.settle, batch)

    def settle(self, batch: list) -> None:
        for _, obj, future in batch:
            if not future.done():
                future.set_result(encode(obj))

    async def store(self, name: str, obj: dict) -> bytes:
        future = self.loop.create_future()
        self.queue.put((name, obj, future))
        return await future

    async def create(self, request: web.Request) -> web.Response:
        obj = decode(await request.read())
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
        obj = decode(row[0])
        for key, value in decode(await request.read()).items():
            obj[key].update(value)
        return web.Response(body=await self.store(name, obj), content_type="application/json")

    async def list(self, request: web.Request) -> web.Response:
        rows = self.reader.execute("SELECT value FROM doc ORDER BY name").fetchall()
        body = b'{"items":[' + b",".join(row[0] for row in rows) + b"]}"
        return web.Response(body=body, content_type="application/json")


async def main() -> None:
    sketch = Sketch(sys.argv[2])
    app = web.Application(client_max_size=1 << 22)
    app.router.add_post("/docs", sketch.create)
    app.router.add_get("/docs", sketch.list)
    app.router.add_get("/docs/{name}", sketch.get)
    app.router.add_patch("/docs/{name}", sketch.patch)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[1])
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


uvloop.run(main())
