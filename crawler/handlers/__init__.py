"""What users program: functions that are called with pages. Must not know engine, web and disk."""
