"""Searches for the best configuration of a GPU under a power cap and other limits.

``problem.py`` has what is asked, ``plan.py`` the answer, and ``search.py`` the search.
"""
