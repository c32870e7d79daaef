"""Explains findings, and shows them in the terminal and in HTML; the reports of campaigns and benchmarks."""
