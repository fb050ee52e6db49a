"""Serves requests with the tenants of a GPU, under a power cap.

::

    arrivals ──> dispatcher (queues, batches) ──> pool (processes, or a simulated GPU)
                     ▲                                  │
    controller ──> server (a Plant) <── power ── sensors┘

``serve`` in ``session.py`` runs a controller on a server; its result is defined in ``report.py``.
"""
