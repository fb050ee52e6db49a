"""A GPU in software: ``presets.simulated_gpu(name)``; everything it measures is ``simulated``.

``physics.py`` has the model, ``gpu.py`` its state over time, ``presets.toml`` its constants.
"""
