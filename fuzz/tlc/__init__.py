"""TLC on the TLA+ twins, which are the translations of models to TLA+ in `tla/`."""
