"""What the loopback brokers answer, by the models: an adapter for each model. Data of the components, no engine."""
