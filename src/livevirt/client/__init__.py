"""One client interface: in process (local) and over HTTP (remote)."""
