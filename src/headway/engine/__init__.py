"""Drives the core in real or virtual time: the loop, its clocks, its journal, its async front."""
