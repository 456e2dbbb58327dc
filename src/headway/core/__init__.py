"""The heart: pure scheduling. Standard library only; no clock, chance, I/O or tensors."""
