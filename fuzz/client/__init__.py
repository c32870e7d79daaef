"""Tests a real Pulsar client against loopback brokers that answer as the models do.

    schedule      a scenario generates schedules; a schedule is a list of steps of the application and the brokers
    run           takes the steps of one schedule, and collects an observation
    contracts     what a client owes its user; each contract judges an observation
    known         known deviations of the client, which explain some violations
    hunt          runs many schedules, and shrinks and replays what violates a contract

A run has two processes, which `harness` starts and sends requests to:

    driver        the process of the client; `rust_driver` is that of a second client
    broker        the process of the brokers, with their sockets. `cluster`, `consumers` and `topic` decide what the
                  brokers answer, by `orders` a schedule changes it, `wire` has the protocol
"""
