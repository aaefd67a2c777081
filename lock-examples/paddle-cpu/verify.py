"""LeNet, ten training steps from one seed, twice: the losses and weights must be equal bit for bit."""

import hashlib
import sys

import cv2
import numpy as np
import paddle


def pictures():
    """Digits drawn by OpenCV: 40 pictures of 28 by 28, and their labels."""
    rng = np.random.RandomState(3)
    labels = np.arange(40) % 10
    out = np.zeros((40, 1, 28, 28), dtype="float32")
    for picture, label in zip(out, labels):
        canvas = np.zeros((28, 28), dtype=np.uint8)
        cv2.putText(canvas, str(label), (6, 22), cv2.FONT_HERSHEY_SIMPLEX, 0.8, 255, 2)
        picture[0] = canvas / 255.0 + rng.normal(0, 0.05, (28, 28))
    return paddle.to_tensor(out), paddle.to_tensor(labels.astype("int64"))


def train(x, y):
    paddle.seed(11)
    model = paddle.vision.models.LeNet(num_classes=10)
    optimizer = paddle.optimizer.Adam(learning_rate=3e-3, parameters=model.parameters())
    losses = []
    for _ in range(10):
        loss = paddle.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.numpy().tobytes())
    return losses, digest.hexdigest()


def main():
    paddle.set_device("cpu")
    x, y = pictures()
    first, second = train(x, y), train(x, y)
    losses = first[0]
    if not np.isfinite(losses).all() or losses[-1] >= losses[0]:
        sys.exit(f"the loss did not fall in ten steps: {losses}")
    if first != second:
        sys.exit(f"two runs from one seed differ: {first} and {second}")
    print(f"paddle {paddle.__version__}, OpenCV {cv2.__version__}: ten steps, loss {losses[0]:.4f} to {losses[-1]:.4f}, twice the same")


if __name__ == "__main__":
    main()
