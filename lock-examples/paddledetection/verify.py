"""One training step of a small detector, from files on disk to updated weights.

Makes a synthetic data set in COCO's format (coloured rectangles on noise), reads it with
PaddleDetection's own reader, builds YOLOv3 on a narrow MobileNetV1 and takes one step of
stochastic gradient descent. Uses no network. Exits non-zero if anything is off.
"""

import json
import os
import sys
import tempfile

import numpy as np

SIZE, IMAGES = 96, 4
ANCHORS = [[10, 13], [16, 30], [33, 23], [30, 61], [62, 45], [59, 119], [116, 90], [156, 198], [373, 326]]
MASKS = [[6, 7, 8], [3, 4, 5], [0, 1, 2]]


def make_coco(root):
    """Writes `IMAGES` pictures and `annotations.json` below `root`."""
    import cv2

    rng = np.random.RandomState(0)
    images, annotations = [], []
    os.makedirs(os.path.join(root, "images"))
    for i in range(IMAGES):
        picture = rng.randint(0, 60, (SIZE, SIZE, 3), dtype=np.uint8)
        for kind in range(2):
            x, y = (int(v) for v in rng.randint(4, SIZE // 2, 2))
            w, h = (int(v) for v in rng.randint(16, SIZE // 2 - 8, 2))
            colour = (255, 40, 40) if kind == 0 else (40, 255, 40)
            cv2.rectangle(picture, (x, y), (x + w, y + h), colour, -1)
            annotations.append(
                dict(id=len(annotations) + 1, image_id=i, category_id=kind + 1,
                     bbox=[x, y, w, h], area=w * h, iscrowd=0)
            )
        name = f"{i}.png"
        if not cv2.imwrite(os.path.join(root, "images", name), picture):
            raise RuntimeError(f"could not write {name}")
        images.append(dict(id=i, file_name=name, width=SIZE, height=SIZE))
    categories = [dict(id=1, name="blue"), dict(id=2, name="green")]
    with open(os.path.join(root, "annotations.json"), "w") as out:
        json.dump(dict(images=images, annotations=annotations, categories=categories), out)


def make_model():
    """YOLOv3 for two classes, small enough for a laptop."""
    from ppdet.modeling.architectures import YOLOv3
    from ppdet.modeling.backbones import MobileNet
    from ppdet.modeling.heads import YOLOv3Head
    from ppdet.modeling.losses import YOLOv3Loss
    from ppdet.modeling.necks import YOLOv3FPN

    backbone = MobileNet(scale=0.25, feature_maps=[4, 6, 13], with_extra_blocks=False)
    neck = YOLOv3FPN(in_channels=[shape.channels for shape in backbone.out_shape])
    loss = YOLOv3Loss(num_classes=2, ignore_thresh=0.7, downsample=[32, 16, 8], label_smooth=False)
    head = YOLOv3Head(
        in_channels=[shape.channels for shape in neck.out_shape],
        anchors=ANCHORS, anchor_masks=MASKS, num_classes=2, loss=loss,
    )
    return YOLOv3(backbone=backbone, neck=neck, yolo_head=head)


def main():
    import paddle
    import ppdet
    from ppdet.data.reader import TrainReader
    from ppdet.data.source import COCODataSet

    paddle.set_device("cpu")
    paddle.seed(0)
    with tempfile.TemporaryDirectory() as root:
        make_coco(root)
        dataset = COCODataSet(
            dataset_dir=root, image_dir="images", anno_path="annotations.json",
            data_fields=["image", "gt_bbox", "gt_class", "is_crowd"],
        )
        dataset.parse_dataset()
        assert len(dataset.roidbs) == IMAGES, dataset.roidbs
        reader = TrainReader(
            sample_transforms=[
                {"Decode": {}},
                {"Resize": {"target_size": [SIZE, SIZE], "keep_ratio": False}},
                {"NormalizeBox": {}},
                {"PadBox": {"num_max_boxes": 4}},
                {"BboxXYXY2XYWH": {}},
                {"NormalizeImage": {"mean": [0.5] * 3, "std": [0.5] * 3, "is_scale": True}},
                {"Permute": {}},
            ],
            batch_transforms=[
                {"Gt2YoloTarget": {"anchor_masks": MASKS, "anchors": ANCHORS, "downsample_ratios": [32, 16, 8]}}
            ],
            num_classes=2, batch_size=IMAGES, shuffle=False, drop_last=True, use_shared_memory=False,
        )
        batch = next(iter(reader(dataset, worker_num=0)))

        model = make_model()
        model.train()
        optimizer = paddle.optimizer.SGD(learning_rate=1e-3, parameters=model.parameters())
        before = [p.numpy().copy() for p in model.parameters() if not p.stop_gradient]
        losses = model(batch)
        loss = losses["loss"]
        loss.backward()
        optimizer.step()
        after = [p.numpy() for p in model.parameters() if not p.stop_gradient]

    value = float(loss)
    moved = sum(not np.array_equal(a, b) for a, b in zip(before, after))
    if not np.isfinite(value) or value <= 0:
        sys.exit(f"the loss is {value}: expected a finite, positive number")
    if moved < len(after) // 2:
        sys.exit(f"only {moved} of {len(after)} parameters moved in a training step")
    print(f"ppdet {ppdet.__version__}, paddle {paddle.__version__}: one step, loss {value:.3f}, {moved} of {len(after)} parameters moved")


if __name__ == "__main__":
    main()
