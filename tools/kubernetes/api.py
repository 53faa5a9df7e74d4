"""A few requests to an API server, with the credentials of a kubeconfig."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from host import ClusterError


class Api:
    """A client of one API server."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        self._user = _named(config["users"], context["user"])["user"]
        self._url = urlsplit(cluster["server"])
        self._tls = _tls_context(cluster, self._user)

    def get(self, path: str) -> Any:
        """Return the object at a path, or None if the server cannot be reached or refuses."""
        try:
            status, body = self._request("GET", path)
        except (OSError, http.client.HTTPException):
            return None
        return json.loads(body) if status == 200 else None

    def ready(self) -> bool:
        """Return whether the server reports that it is ready."""
        try:
            return self._request("GET", "/readyz") == (200, b"ok")
        except (OSError, http.client.HTTPException):
            return False

    def create(self, path: str, manifest: dict[str, Any]) -> None:
        """Create an object unless it exists."""
        status, body = self._request("POST", path, json.dumps(manifest).encode())
        if status not in (200, 201, 409):
            raise ClusterError(f"cannot create {path}: {body.decode(errors='replace')}")

    def ready_nodes(self) -> set[str]:
        """Return the names of the nodes that are Ready and accept pods."""
        nodes = self.get("/api/v1/nodes") or {"items": []}
        return {
            node["metadata"]["name"]
            for node in nodes["items"]
            if not any(
                taint["key"] == "node.kubernetes.io/not-ready"
                for taint in node["spec"].get("taints", [])
            )
            and any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in node["status"].get("conditions", [])
            )
        }

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        address = (self._url.hostname or "localhost", self._url.port)
        connection: http.client.HTTPConnection
        if self._url.scheme == "https":
            connection = http.client.HTTPSConnection(*address, timeout=10, context=self._tls)
        else:
            connection = http.client.HTTPConnection(*address, timeout=10)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token := self._user.get("token"):
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, self._url.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise ClusterError(f"the kubeconfig has no entry {name}")


def _tls_context(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=base64.b64decode(authority).decode() if authority else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    elif "client-certificate-data" in user:
        # The ssl module loads client certificates from files only.
        with tempfile.NamedTemporaryFile() as pair:
            os.fchmod(pair.fileno(), 0o600)
            for field in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[field]) + b"\n")
            pair.flush()
            context.load_cert_chain(pair.name)
    return context
