"""Subresources that reach into a running guest: console, exec, pause, guest information."""
