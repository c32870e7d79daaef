"""Traces: their files, recordings of a real system, and replay.

    file         the format of trace files
    recording    maps recordings of a Pulsar version to a component
    agreement    replays one trace
    parallel     replays files on all cores
    spark        replays files as a Spark job
    threads      records concurrent histories of Python objects

`fuzz/run/replay.py` replays the calls of a finding, without a file.
"""
