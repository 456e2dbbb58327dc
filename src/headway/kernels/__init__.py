"""The operations that models are made of, one implementation a backend.

:mod:`headway.kernels.ops` is the protocol; a backend implements it over its own tensors.
"""
