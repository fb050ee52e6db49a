"""The report process: makes the job that it reads from the standard input.

The last line of its standard output has the last figures, as JSON.
It runs at the lowest priority, so that it does not slow down a training that runs at the same time.
"""

import json
import os
import sys

if __name__ == "__main__":
    if sys.platform != "win32":
        os.nice(19)
    from energy_callbacks.report_process.job import ReportJob

    figures = ReportJob.from_json(sys.stdin.read()).make()
    sys.stdout.write(f"\n{json.dumps(figures)}\n")
