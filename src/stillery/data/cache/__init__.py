"""The cache folder on disk: entries, their arrays, and locks."""
