"""Metrics of virtual machines under KubeVirt's names, and of live changes under our own.

Figures of objects are derived on each scrape, from copies the controllers keep anyway;
durations are counted as the objects change. Nothing here asks a guest: see `node.guest_metrics`.
"""
