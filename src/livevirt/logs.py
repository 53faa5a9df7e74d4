"""Structured logs: a constant phrase, then facts as key=value."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Formatter(logging.Formatter):
    """One line per record: time, level, logger, phrase, fields in the order given."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with a traceback below it where there is one."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = " ".join(
            f"{name}={_value(value)}" for name, value in record.__dict__.items() if name not in _OWN
        )
        line = (
            f"{when} {record.levelname:<7} {record.name}: {record.getMessage()} {fields}".rstrip()
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _value(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or " " in text or "=" in text else text


def configure(level: str) -> None:
    """Send our logs to standard error; other libraries' only from warnings up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("livevirt").setLevel(level.upper())
