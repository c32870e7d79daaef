"""Lockstep runs: generation, comparison, coverage, shrinking."""
