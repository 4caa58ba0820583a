"""How long a test waits before it calls a hang a hang: tests share their machine."""

PATIENCE_S = 50.0  # only a hang takes that long, under any load; below the 60 s that some tests must not wait for
