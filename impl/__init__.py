"""Optimised implementations of the components: the settings and the `reference` rules of the models."""
