"""Bodies become pages: in the event loop, in a thread, or in a process that may be killed."""
