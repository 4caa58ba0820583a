"""The base of a running instance: clock, counters, helper processes, crash points, log files."""
