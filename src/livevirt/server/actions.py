"""Verbs of subresources.kubevirt.io: start, stop, console and the like."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from livevirt.api.request import Answer, User
from livevirt.server import refusals
from livevirt.server.route import Action


async def handle(action: Action, http: web.BaseRequest, user: User, body: Any) -> Answer:
    """Refuse every verb nobody brought."""
    raise refusals.no_such_path()
