"""Explains findings, and shows them in the terminal and in HTML. The reports of campaigns and benchmarks.

    explain      replays a trace, and returns its steps and why it is a finding
    why          the conditions that make a property false
    changes      the parts in which two states differ
    in_pulsar    the Java methods of a step, and the rules that a finding needs
    finding      a finding with its explanation and its row of the defect table; `schedule` has this for real clients
    records      the types of findings and explanations; `text` has their texts
    terminal     prints findings

`campaign` makes the report of a campaign, `bench` that of benchmarks. `sequence` and `diagram` draw charts.
"""
