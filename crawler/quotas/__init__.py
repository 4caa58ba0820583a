"""How many URLs a crawl takes in and fetches."""
