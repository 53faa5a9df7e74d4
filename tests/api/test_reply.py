"""Answers on the wire: kept connections, closed ones, bare heads, warnings."""

from __future__ import annotations

import http.client
import json

from ..server_process import ServerProcess


def connect(server: ServerProcess) -> http.client.HTTPSConnection:
    host, _, port = server.url.removeprefix("https://").rpartition(":")
    return http.client.HTTPSConnection(host, int(port), context=server.admin(), timeout=20)


def test_one_connection_answers_many_requests(server: ServerProcess) -> None:
    connection = connect(server)
    for _ in range(3):
        connection.request("GET", "/api/v1/namespaces/default")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.getheader("Connection") is None
        assert json.loads(answer.read())["metadata"]["name"] == "default"
    connection.close()


def test_a_client_that_wants_the_connection_closed_is_told_it_is(server: ServerProcess) -> None:
    connection = connect(server)
    connection.request("GET", "/api/v1/namespaces/default", headers={"Connection": "close"})
    answer = connection.getresponse()
    assert answer.getheader("Connection") == "close"
    assert json.loads(answer.read())["kind"] == "Namespace"
    assert answer.isclosed()


def test_head_answers_without_a_body(server: ServerProcess) -> None:
    connection = connect(server)
    connection.request("HEAD", "/api/v1/namespaces/default")
    answer = connection.getresponse()
    assert int(answer.getheader("Content-Length", "0")) > 0
    assert answer.read() == b""
    connection.request("GET", "/api/v1/namespaces/default")  # nothing of a body is in the way
    assert connection.getresponse().status == 200
    connection.close()


def test_warnings_are_headers_and_cannot_break_out_of_them(
    server: ServerProcess, namespace: str
) -> None:
    connection = connect(server)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, 'x"\r\nEvil: 1': 1}
    connection.request(
        "POST", f"/api/v1/namespaces/{namespace}/configmaps", json.dumps(body),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    answer = connection.getresponse()
    assert answer.status == 201
    assert answer.getheader("Evil") is None
    assert answer.getheader("Warning", "").startswith('299 - "unknown field')
    connection.close()


def test_a_large_answer_comes_whole(server: ServerProcess, namespace: str) -> None:
    connection = connect(server)
    body = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"},
        "data": {"k": "x" * 300_000},
    }  # fmt: skip
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    assert connection.getresponse().read()
    connection.request("GET", f"{path}/large")
    assert len(json.loads(connection.getresponse().read())["data"]["k"]) == 300_000
    connection.close()
