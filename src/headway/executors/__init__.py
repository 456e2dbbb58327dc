"""What computes a plan: a model on torch, a cost model, or a recorded run."""
