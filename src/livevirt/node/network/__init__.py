"""The network that the guests of one livevirt share.

A network namespace holds a bridge with one tap device per interface, a DHCP and DNS server, and an
nftables ruleset; a pair of virtual Ethernet devices connects it to the host. What it should be is
computed by pure functions (`addresses`, `links`, `ruleset`, `dnsmasq`); `namespace` runs the
commands and `network` decides when. All of it can be read again after a crash: the ports of guests
from their start intents, everything else from the kernel.
"""
