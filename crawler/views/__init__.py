"""What viewers read and operators change of an open crawl, for the command line, the API and `top` alike."""
