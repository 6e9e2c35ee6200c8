"""The cache folder on disk: its arrays and its locks."""
