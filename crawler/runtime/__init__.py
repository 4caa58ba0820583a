"""What every part of a running instance uses: clock, counters, helper processes, crash points, log files."""
