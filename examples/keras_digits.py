"""A Keras training with its energy beside the loss: python examples/keras_digits.py

On TensorFlow; for another backend set KERAS_BACKEND=jax or KERAS_BACKEND=torch.
"""

import keras
from sklearn.datasets import load_digits

from energy_callbacks.keras import GpuEnergyCallback

digits = load_digits()
model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Rescaling(1 / 16),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    digits.data,
    digits.target,
    batch_size=64,
    epochs=20,
    validation_split=0.2,
    callbacks=[GpuEnergyCallback()],
)
print("J per sample:", history.history["efficiency/total_j_per_sample"][-1])
