"""Traces: file format, corpus, recordings."""
