"""Runs several distillations in the processes it is started in; its argument is what to run, as JSON."""

from __future__ import annotations

import json
import sys

from stillery import distill

if __name__ == "__main__":
    common, runs = json.loads(sys.argv[1])
    for settings in runs:
        distill(**(common | settings))
