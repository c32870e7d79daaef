"""Tests a real Pulsar client against loopback brokers that answer as the models do.

    schedule      a scenario generates schedules; a schedule is a list of steps of the application and the brokers
    run           executes the steps of one schedule, and collects an observation
    contracts     guarantees of the client; each contract returns how an observation violates it
    known         known deviations of the client, which explain some violations
    hunt          runs many schedules, and shrinks and replays those that violate a contract

A run has two processes, which `harness` starts and sends requests to:

    driver        the process of the client; `rust_driver` is that of a second client
    broker        the process of the brokers, with their sockets. `cluster`, `consumers` and `topic` decide what the
                  brokers answer. `orders` has the orders by which a schedule changes these answers, `answer` the types
                  of orders about answers. `wire` has the protocol
"""
