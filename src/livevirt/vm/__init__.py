"""KubeVirt's kinds and rules: one folder per capability, rules beside controllers."""
