"""CPU and memory of a running guest: what its pod must hold, and what the conditions report."""
