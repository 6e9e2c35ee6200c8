"""Tokenisation: encoding, caching, batching and padding."""
