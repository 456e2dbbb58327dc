"""Proofs that plans hold: made on one half of a recording, judged on the other."""
