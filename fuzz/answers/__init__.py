"""What the models say about a run of a real client and the loopback brokers (`fuzz/client/broker.py`).

Each module but `judge` and `batches` adapts a model: the module takes steps of the model's machine.

    cursor        which messages a cursor has acknowledged, and what it reads next (`batch_acks`)
    ownership     which broker serves the topics (`bundle_transfer`)
    dispatcher    what is delivered next, to whom, for how many permits (`managed_ledger`, `client_session`)
    nacks         when a client asks for redelivery (`negative_acks`)

The brokers ask `cursor` and `ownership` while they run. After a run, `judge` compares all decisions of the brokers with
the models. The scenario `batch_acks` uses `batches` (the messages that its application has not acknowledged), and the
contracts of negative acknowledgements use `nacks`.
"""
