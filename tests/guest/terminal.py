"""A terminal for commands that talk to a person, and what a person does at a console."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

from ..server_process import ServerProcess

SECONDS = 180.0  # an emulated CPU on a busy machine


class Terminal:
    """A command on a terminal of its own: what a person at a keyboard has."""

    def __init__(self, server: ServerProcess, *command: str) -> None:
        self._keyboard, terminal = pty.openpty()
        self.process = subprocess.Popen(
            command, env=server.environment(), stdin=terminal, stdout=terminal, stderr=terminal,
            start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self.seen = b""

    def type(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    def read_until(self, text: bytes) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come, but {self.seen[-500:]!r}"
            if select.select([self._keyboard], [], [], left)[0]:
                self.seen += os.read(self._keyboard, 4096)

    def close(self) -> int:
        try:
            return self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self._keyboard)


def log_in_and_out(terminal: Terminal, guest: str) -> None:
    """Log in at the guest's prompt, ask something, log out and leave."""
    terminal.read_until(f"uccessfully connected to {guest} console".encode())
    terminal.seen = b""
    terminal.type(b"\r")
    terminal.read_until(b"login: ")
    terminal.type(b"root\r")
    terminal.read_until(b"~# ")
    terminal.type(b"echo $((40 + 2)) is the answer\r")
    terminal.read_until(b"42 is the answer")
    terminal.seen = b""
    terminal.type(b"exit\r")
    terminal.read_until(b"login: ")
    terminal.type(b"\x1d")
