"""Campaigns: fuzzing on Spark in rounds that can be resumed.

    worker       tasks about a component. `schedules` has tasks about a real client, `kinds` selects one of the two
    driver       cuts seeds into tasks, runs them in rounds, and commits each round
    folder       the tables of a campaign; `store` commits tables atomically on any file system of Spark
    summary      coverage goals that a campaign missed, and the differences of two campaigns

`local` fuzzes without Spark and without tables, for `brokerproof fuzz`. `grid` runs the measurements of `brokerproof
compare`, and stores their rows as a campaign stores its tables. `corpus` collects traces that together reach every
abstract state and coverage goal of a run.
"""
