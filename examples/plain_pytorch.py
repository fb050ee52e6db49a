"""A plain PyTorch loop with its energy: python examples/plain_pytorch.py"""

import torch
from sklearn.datasets import load_digits

from energy_callbacks import EnergyMeter
from energy_callbacks.outputs.tensorboard import TensorBoardOutput

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1)
labels = torch.tensor(digits.target)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.Adam(net.parameters())

with EnergyMeter(outputs=[TensorBoardOutput("energy_runs/plain")]) as meter, meter.phase("train"):
    for step in range(600):
        picked = torch.randint(len(images), (64,))
        loss = torch.nn.functional.cross_entropy(net(images[picked]), labels[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.step(samples=len(picked))
        if step % 50 == 0:
            meter.log(step)

print(meter.save_report())
