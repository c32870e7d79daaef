"""Helpers shared by the proofs of several components."""
