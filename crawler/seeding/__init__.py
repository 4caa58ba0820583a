"""Seed URLs from people, files and sitemaps."""
