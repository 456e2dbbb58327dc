"""Peers of the real parts, shipped so that others can test with them too."""
