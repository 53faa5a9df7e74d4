"""HTTP below the handler: what is no HTTP at all is refused in Kubernetes' own form too."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError

from livevirt.errors import ApiError, BadRequest
from livevirt.kube.server import objects

log = logging.getLogger(__name__)


class Server(web.Server):
    """aiohttp's server, with our own handling of errors on each connection."""

    def __call__(self) -> web.RequestHandler:
        """Return what handles one connection."""
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ()

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Log a failure of ours; a body that cannot be read is the client's, who was told."""
        if not isinstance(more.get("exc_info"), HttpProcessingError | web.RequestPayloadError):
            super().log_exception(*args, **more)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be parsed, or what the handler failed to answer; then close."""
        if request.writer.output_size > 0:
            raise ConnectionError("part of an answer has been sent already") from exc
        error = _refusal(status, exc)
        response = web.Response(
            status=error.status_code,
            body=objects.encode(error.status()),
            headers={"Content-Type": "application/json"},
        )
        response.force_close()
        return response


def _refusal(status: int, cause: BaseException | None) -> ApiError:
    if status < 500:
        # What came is not repeated: it may be binary, long, or a secret at the wrong place.
        why = type(cause).__name__ if cause is not None else "malformed"
        log.debug("request is no HTTP", extra={"error": why})
        return BadRequest(f"the request is not valid HTTP ({why})")
    log.error("request failed", exc_info=cause)
    return ApiError("an internal error occurred; the server's log has the details")
