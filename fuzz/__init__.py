"""The engines, which compare models with implementations and check properties, and the command line."""
