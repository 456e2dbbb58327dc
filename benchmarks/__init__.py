"""Measurements and demonstrations: ``python -m benchmarks.NAME [--json]``, from the repository."""
