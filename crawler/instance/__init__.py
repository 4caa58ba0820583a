"""The life of one process: what it counts, tells, follows, hands over, and when it ends."""
