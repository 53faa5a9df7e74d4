"""A Kubernetes API server that fits in one process; it knows nothing about virtual machines."""
