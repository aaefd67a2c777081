"""cuDNN is found by the bare name the framework uses, then ten training steps of a convolution network.

On a GPU where a driver is there. Without one the same steps run on the CPU, and the line
printed says so: that proves the libraries, not the GPU.
"""

import ctypes
import os
import sys

import numpy as np


def cudnn_version():
    """Opens `libcudnn.so`, as PaddlePaddle 2.6 does, and asks its version."""
    return ctypes.CDLL("libcudnn.so").cudnnGetVersion()


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")


def main():
    version = cudnn_version()
    if version // 100 != 86:
        sys.exit(f"libcudnn.so is version {version}: expected 8.6")
    import paddle
    from paddle import nn

    place = "gpu" if has_driver() and paddle.device.cuda.device_count() else "cpu"
    paddle.set_device(place)
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
    if not np.isfinite(losses).all() or losses[-1] >= losses[0] / 2:
        sys.exit(f"the loss did not halve in ten steps: {losses}")
    print(f"paddle {paddle.__version__}, cuDNN {version}, on {place}: ten steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
