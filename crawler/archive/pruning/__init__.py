"""Removes committed pages from a crawl folder: records, items, history. Whole files go, others are copied in part."""
