"""Benchmarks, each against a baseline. `runner` runs all, and has those of the engines; other modules have the rest."""
