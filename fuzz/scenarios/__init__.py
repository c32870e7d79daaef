"""Scenarios: kinds of test runs of a real client. The scenario NAME is `fuzz/scenarios/NAME.py`.

In a run, a Pulsar client connects to two loopback brokers, which answer as the models do, unless a step has ordered
another answer. The run executes a schedule: a list of steps. Each step makes the brokers or the application of the
client do something. After the run, contracts judge what was observed. To add a scenario, write a module with a
`scenario` (`fuzz/client/schedule.py`); `producer.py` is an example. A scenario has

    settings    the settings of a schedule, each with its domain; shrinking prefers values at the front. `kind` is the
                subscription type: 0 Exclusive, 1 Shared, 2 Failover
    begin       starts the brokers (`run.start`), and may create a producer and consumers (`run.create_producer`,
                `run.subscribe`)
    steps       kinds of steps: a function of the run and arguments, the arguments' domains, a weight. A schedule draws
                its steps from the first kind and about half of the others
    end         ends all orders, and collects the observation (`Run.finish`)
    contracts   functions of the observation (`fuzz/client/contracts.py`, or a module here), most severe first; for
                each, `tests/test_client.py` has an observation that violates it

A step sends requests to the brokers (methods of `Ordered` in `fuzz/client/orders.py`, or `do_...` of
`fuzz/client/broker.py`) and to the client (methods of `fuzz/client/driver.py`). Then the step waits for the effect of
the requests (`run.sync`, `run.wait`): if a command were in flight between two steps, a replay could differ. A step
sleeps (`run.pause`) only where the brokers cannot see the effect: acks that the client groups, and the client's timers.

`experiments.toml` has single schedules, each with a prediction that was written before the first run.

A confirmed deviation of the client becomes a row of `known.toml` (`fuzz/client/known.py`) with its shrunk schedule,
which a nightly test replays. The row names a function of `evidence.py`, which decides whether the deviation explains a
violation, or whether there may be another defect.
"""
