"""Quotas: how many URLs a crawl admits and fetches."""
