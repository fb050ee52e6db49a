"""Results that a change of the code's structure must not change, byte by byte.

``python -m tests.golden`` writes ``expected/`` anew after a change that is meant to change them;
``python -m tests.golden FOLDER`` writes every file into a folder, to look at a difference.
"""
