"""Go through the weights of a GGUF as NumPy arrays, one in memory at a time.

python examples/gguf_weights.py llama-3.2-1b-Q4_K_M.gguf
"""

from __future__ import annotations

import sys

import numpy as np

import anamnesis as an


def main(path: str) -> None:
    """Print each weight's encoding, shape, root mean square and largest magnitude."""
    with an.parse(path) as model:
        print(model.metadata.get("general.architecture", "unknown architecture"))
        for name, tensor in model.items():
            values = tensor.numpy()  # float32
            rms = float(np.sqrt(np.mean(np.square(values))))
            most = float(np.abs(values).max())
            print(f"{name:32} {tensor.scheme:6} {tensor.shape!s:14} {rms:.4f} {most:.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
