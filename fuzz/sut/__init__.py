"""Foreign programs in lockstep with the model, over standard input and output. Protocol: fuzz/README.md."""
