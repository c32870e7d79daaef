"""Real Pulsar clients against loopback brokers whose answers are the models'."""
