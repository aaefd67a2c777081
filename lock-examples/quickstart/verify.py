"""Ten training steps of a convolution network on the CPU: the loss must fall.

The data are made here: pictures whose label says in which half the bright patch is. The
numbers printed at the end depend on the seed alone, so two machines can compare them.
"""

import sys

import numpy as np
import paddle
from paddle import nn


def main():
    paddle.set_device("cpu")
    paddle.seed(7)
    rng = np.random.RandomState(7)
    labels = rng.randint(0, 2, 64)
    pictures = rng.normal(0, 0.3, (64, 1, 16, 16)).astype("float32")
    for picture, label in zip(pictures, labels):
        picture[0, 4:12, (2 if label == 0 else 9):(7 if label == 0 else 14)] += 1.0
    x, y = paddle.to_tensor(pictures), paddle.to_tensor(labels.astype("int64"))

    model = nn.Sequential(
        nn.Conv2D(1, 8, 3, padding=1), nn.BatchNorm2D(8), nn.ReLU(), nn.MaxPool2D(2),
        nn.Conv2D(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 8 * 8, 2),
    )
    optimizer = paddle.optimizer.Adam(learning_rate=1e-2, parameters=model.parameters())
    losses = []
    for _ in range(10):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    if not all(np.isfinite(losses)):
        sys.exit(f"a loss is not finite: {losses}")
    if losses[-1] >= losses[0] / 2:
        sys.exit(f"the loss did not halve in ten steps: {losses[0]:.4f} to {losses[-1]:.4f}")
    print(f"paddle {paddle.__version__}: ten steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
