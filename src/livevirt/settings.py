"""What `livevirt up` was asked for, handed from the command to the server process."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """Everything the server needs to know to start."""

    data_dir: str
    host: str = "127.0.0.1"
    port: int = 6443
    log_level: str = "info"
    nodes: int = 1
    node_capacity: dict[str, str] = {}  # what each node offers; the machine divided if empty
    image_store: str = ""  # `images/` of the default data directory if empty
    catalog: bool = True  # whether the common instance types are installed
