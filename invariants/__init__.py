"""Properties of the components: safety, coverage goals and liveness; and proofs of safety properties."""
