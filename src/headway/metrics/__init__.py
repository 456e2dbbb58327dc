"""Metrics: each declared once, fed from the scheduler's events, rendered for Prometheus."""

from headway.metrics.engine import EngineMetrics
from headway.metrics.registry import CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "EngineMetrics"]
