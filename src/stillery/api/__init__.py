"""The public Python API: the jobs as functions, for data and models in files or in memory."""
