"""Text for terminals: what may be printed, numbers and times in words, tables."""
