"""Tests a real Pulsar client against loopback brokers that answer as the models do.

    schedule      generates and executes schedules: lists of steps of the application and the brokers
    run           executes the steps of one schedule, and collects an observation
    contracts     guarantees of the client; a contract returns how an observation violates the guarantee
    known         known deviations of the client from its contracts
    hunt          runs many schedules; shrinks and replays those that violate a contract

A run has two processes, which `harness` starts and sends requests to:

    driver        the process of the client; `rust_driver` is that of a second client
    broker        the process of the brokers, with their sockets. `wire` has the protocol. `cluster`, `consumers` and
                  `topic` decide what the brokers answer. An order of a schedule makes the brokers deviate from the
                  models, for example ignore a send: `orders` has the orders, `answer` the types of some of them
"""
