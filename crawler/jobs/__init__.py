"""The part of a running instance that jobs need: it triggers what is due, seeds runs, and notices their ends."""
