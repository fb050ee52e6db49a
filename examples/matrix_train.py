"""The training that examples/matrix.toml runs with many settings; it also runs alone."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch.nn import functional

from energy_callbacks import EnergyMeter

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--seed", type=int, default=0)
chosen = parser.parse_args()

torch.manual_seed(chosen.seed)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16.0
labels = torch.tensor(digits.target)
shuffled = torch.randperm(len(images))
train, held_out = shuffled[:1500], shuffled[1500:]

net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
if chosen.optimizer == "adam":
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
else:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

step = 0
with EnergyMeter() as meter:
    for epoch in range(chosen.epochs):
        with meter.phase("train"):
            for picked in train[torch.randperm(len(train))].split(chosen.batch_size):
                loss = functional.cross_entropy(net(images[picked]), labels[picked])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                meter.step(samples=len(picked))
        with meter.phase("validation"), torch.no_grad():
            right = net(images[held_out]).argmax(1) == labels[held_out]
            accuracy = right.float().mean().item()
        meter.record_metrics({"val_accuracy": accuracy}, step=step, epoch=epoch + 1)

print(f"val_accuracy {accuracy:.3f} after {step} steps")
print(meter.save_report())
