"""Exports a Hugging Face directory for OpenVINO with int8 weights: ``SOURCE TARGET``.

Runs in the virtual environment ``openvino-export``, which alone needs torch.
"""

from __future__ import annotations

import sys


def main() -> None:
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

    source, target = sys.argv[1:]
    int8 = OVWeightQuantizationConfig(bits=8, sym=False)  # optimum-intel's own default for int8
    model = OVModelForCausalLM.from_pretrained(
        source, export=True, compile=False, quantization_config=int8
    )
    model.save_pretrained(target)


if __name__ == "__main__":
    main()
