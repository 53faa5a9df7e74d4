"""The effective spec of an instance: defaults, topology, memory, devices and their validation."""
