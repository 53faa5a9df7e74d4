from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livevirt.kube.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    store = Store.open(path)
    yield store
    await store.close()
