"""Traces: file format, recordings, replay, histories of threads."""
