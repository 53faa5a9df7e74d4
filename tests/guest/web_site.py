"""A web site on loopback, for guests and for imports."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator, Mapping

_PATIENCE = 120.0  # seconds that half a file waits for the rest: no test takes so long


class Site(http.server.ThreadingHTTPServer):
    """Files by path, and which of them were sent."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files = files
        self.sent: list[str] = []  # paths of files that went out whole
        self.go_on = threading.Event()  # until it is set, only half of a file goes out
        self.go_on.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = len(content) // 2
        self.wfile.write(content[:half])
        self.wfile.flush()
        self.server.go_on.wait(_PATIENCE)
        self.wfile.write(content[half:])
        self.server.sent.append(self.path)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[Site]:
    """Serve files while the block lasts."""
    with Site(files) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()
