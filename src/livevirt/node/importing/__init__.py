"""Fills volumes from images: downloads, conversion, publishing."""
