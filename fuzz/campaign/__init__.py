"""Campaigns: fuzzing on Spark that can be resumed. A task runs consecutive seeds, a round is a list of tasks.

    worker       runs a task of a component. Each seed stands for a trace
    schedules    runs a task of a scenario of a real client. Each seed stands for a schedule
    kinds        selects `worker` or `schedules` by the subject of a task
    driver       cuts seeds into tasks, runs the tasks in rounds, and commits each round
    folder       the tables of a campaign; `store` commits tables atomically on any file system of Spark
    summary      coverage goals that a campaign missed, and the differences of two campaigns

`local` fuzzes without Spark and without tables, for `brokerproof fuzz`. `grid` runs the measurements of `brokerproof
compare`, and stores their rows as a campaign stores its tables. `corpus` collects traces that together reach every
abstract state and coverage goal that a run of `brokerproof fuzz` reached.
"""
