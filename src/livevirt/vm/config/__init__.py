"""The KubeVirt object: the settings of the whole cluster."""
