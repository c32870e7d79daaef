"""Campaigns: fuzzing on Spark in rounds that can be resumed.

    worker       a task: seeds of a component, and their findings. `schedules` has the tasks of real clients, `kinds`
                 what a campaign needs to know of the two
    driver       cuts seeds into tasks, runs them in rounds, and commits each round
    folder       the tables of a campaign; `store` commits tables atomically on any file system of Spark
    summary      coverage goals that a campaign missed, and the differences of two campaigns

`local` is `brokerproof fuzz`: the same without Spark and without tables. `grid` runs the measurements of `brokerproof
compare` on the same store. `corpus` collects traces that reach all that a run has reached.
"""
