"""Runs of the model, alone or in lockstep with a second side such as the implementation.

    generate, wide    the calls of a seed's trace; integers near limits
    lockstep          runs seeds as fast as possible; a trace in which something is wrong is replayed
    pair, replay      execute calls with every step checked, and say what is wrong
    compare, checks   comparison of values; the properties to check
    call, finding     the types of a call, a difference and a finding
    shrink            finds a short counterexample
    coverage          what the traces reached
    stateful          a Hypothesis state machine: an independent search
    linearize, gaps   whether recordings of concurrent threads, and recordings with gaps, agree with the model
    watchdog          ends a step that does not return
    link              a child process that answers lines with lines, within limits (`sut` and `client`)

`fuzz/target.py` says what the second side can be.
"""
