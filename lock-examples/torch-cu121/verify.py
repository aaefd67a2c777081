"""Ten training steps of a convolution network, on the GPU where there is one; the loss must halve."""

import sys

import numpy as np
import torch
from torch import nn


def main():
    if torch.version.cuda != "12.1":
        sys.exit(f"torch is built for CUDA {torch.version.cuda}: expected 12.1")
    if torch.backends.cudnn.is_available() and torch.backends.cudnn.version() // 100 != 89:
        sys.exit(f"cuDNN is version {torch.backends.cudnn.version()}: expected 8.9")
    place = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(7)
    rng = np.random.RandomState(7)
    labels = rng.randint(0, 2, 64)
    pictures = rng.normal(0, 0.3, (64, 1, 16, 16)).astype("float32")
    for picture, label in zip(pictures, labels):
        picture[0, 4:12, (2 if label == 0 else 9):(7 if label == 0 else 14)] += 1.0
    x, y = torch.from_numpy(pictures).to(place), torch.from_numpy(labels.astype("int64")).to(place)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 8 * 8, 2),
    ).to(place)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    if not np.isfinite(losses).all() or losses[-1] >= losses[0] / 2:
        sys.exit(f"the loss did not halve in ten steps: {losses}")
    print(f"torch {torch.__version__} on {place}: ten steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
