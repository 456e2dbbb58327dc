"""Headway beside other engines, on one machine, taking turns: ``python -m benchmarks.peers``."""
