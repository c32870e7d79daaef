"""Benchmarks, each against a baseline. `runner` runs all; it has those of the engines, the other modules the rest."""
