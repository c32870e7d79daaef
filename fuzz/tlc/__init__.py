"""TLC on the TLA+ twins."""
