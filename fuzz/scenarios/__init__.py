"""Scenarios: what brokers and a real client may do in a schedule. A module for each, found by its file name.

To add one, write `fuzz/scenarios/NAME.py` with a `scenario` (`fuzz/client/schedule.py`); `producer.py` is the example:

    settings    the settings of a schedule, each with its domain; shrinking prefers values at the front
    begin       starts the brokers (`run.start`) and attaches clients (`run.produce`, `run.subscribe`)
    steps       kinds of steps: a function of the run and arguments, the arguments' domains, a weight. The first kind is
                in every schedule, of the others each schedule has about half
    end         makes the brokers faithful and collects what was observed (`Run.finish`)
    contracts   functions of the observation (`fuzz/client/contracts.py`, or a module here), most severe first; for
                each, `tests/test_client.py` has an observation that violates it

A step sends requests to the brokers (methods of `Ordered` in `fuzz/client/orders.py`, or `do_...` of
`fuzz/client/broker.py`) and to the client (methods of `fuzz/client/driver.py`). Then it waits for their effect
(`run.sync`, `run.wait`), because a schedule with a command in flight between two steps does not replay. A step sleeps
(`run.pause`) only where the brokers cannot see the effect: acks that the client groups, and timers of the client.

`experiments.toml` has single schedules, each with a prediction that is older than its first run.

A confirmed deviation of the client becomes a row of `known.toml` (`fuzz/client/known.py`) with its shrunk schedule,
which a nightly test replays, and a function of `evidence.py` that tells its violations from those of other defects.
"""
