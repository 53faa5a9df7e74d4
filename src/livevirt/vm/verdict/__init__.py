"""The heart, pure and free of I/O: what a guest gets when a manifest leaves it open, and what its
pod asks for. Specs come in as plain dicts; the maths reads them through typed views."""
