"""The connection to Redis or Valkey: no keys and no scripts of ours."""
