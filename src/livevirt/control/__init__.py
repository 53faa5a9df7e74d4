"""Work queue, informer, reconcile loop, event recorder, leader lease; has never heard of VMs."""
