"""One engine a module; each runs in the virtual environment of its engine.

They import the standard library, :mod:`benchmarks.peers.protocol` and their engine, nothing else.
"""
