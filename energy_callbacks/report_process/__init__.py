"""Ends a training's attempt, and makes its report afterwards, usually in a separate process.

::

    training process                      report process
    ReportQueue.make(job) ── starts ──▶   python -m energy_callbacks.report_process
                                          job.make: report files, pages of TensorBoard
    job.publish ◀──────── last figures ──
"""
