"""Serves requests with the tenants of a GPU, under a power cap.

::

    arrivals ──> dispatcher (queues, batches) ──> pool (processes, or a simulated GPU)
                     ▲                                  │
    controller ──> server (a Plant) <── power ── sensors┘

``session.py`` lets a controller hold the cap, and ``report.py`` has what it returns.
"""
