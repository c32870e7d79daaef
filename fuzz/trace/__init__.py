"""Traces: file format, recordings, replay, concurrent histories."""
