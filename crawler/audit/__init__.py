"""Proves from logs, archive and engine that a crawl was exact, polite and owned."""
