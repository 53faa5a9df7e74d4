"""What every test may ask for: a running server, shared by all of them; and scrambled messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from .scramble import scrambling
from .server_process import ServerProcess, running_server

SCRAMBLE = "--scramble-messages"

# How long an example takes says something about the machine, and nothing about the code.
settings.register_profile("livevirt", parent=settings(), deadline=None)
settings.load_profile("livevirt")


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """A real server; each test works in a namespace of its own."""
    with running_server() as started:
        yield started


# ------------------------------------------------------------ no decision reads a message


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on",
        choices=("embedded", "kubernetes"),
        default="embedded",
        help="the API server for tests marked `both`; with `kubernetes`, other tests are left out",
    )
    parser.addoption(
        SCRAMBLE,
        action="store_true",
        help="replace every message of a condition, event or status field with gibberish, here and"
        " in the servers that tests start; leaves out tests that are marked `wording`",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(SCRAMBLE):
        scrambling.install()
        os.environ[scrambling.SWITCH_VARIABLE] = "yes"
    folders = [str(Path(scrambling.__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.getoption(SCRAMBLE):
        return None
    return f"messages are scrambled; {scrambling.SEED_VARIABLE}={scrambling.SEED.decode()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = []
    if config.getoption(SCRAMBLE):
        left_out += [item for item in items if item.get_closest_marker("wording") is not None]
    if config.getoption("--on") == "kubernetes":
        left_out += [item for item in items if not _runs_on_kubernetes(item)]
    if left_out:
        config.hook.pytest_deselected(items=list(dict.fromkeys(left_out)))
        items[:] = [item for item in items if item not in set(left_out)]


def _runs_on_kubernetes(item: pytest.Item) -> bool:
    both, embedded = (item.get_closest_marker(each) for each in ("both", "embedded"))
    return both is not None and embedded is None
