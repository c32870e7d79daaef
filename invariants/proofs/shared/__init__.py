"""What the proofs of several components use."""
