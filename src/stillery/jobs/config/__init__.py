"""A run as settings: command line, run files, presets, and what a student inherits from its teacher."""
