"""The specification: one small state machine for each component, written to be read."""
