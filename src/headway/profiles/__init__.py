"""Step-cost models: how long a step takes, measured, calculated or fitted.

Standard library only. What serves and what simulates may ask the same profile.
"""
