"""Volumes and disks of a guest, also those attached while it runs."""
