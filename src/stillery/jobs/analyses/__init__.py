"""The analyses as jobs: what a user names is loaded, analysed, and written as data, picture and sentence."""
