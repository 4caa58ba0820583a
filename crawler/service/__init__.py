"""What people do with a crawl: asked for alike by the command line, the HTTP API and the terminal UI."""
