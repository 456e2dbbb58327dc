"""OpenVINO GenAI's continuous batching pipeline, driven step by step.

``options``: ``model`` (an exported directory), ``device`` (properties of the CPU device), and
``scheduler`` (fields of its ``SchedulerConfig``).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import openvino
import openvino_genai

from benchmarks.peers.protocol import Prompts, Timing, serve


class OpenVinoEngine:
    def __init__(self, options: dict[str, Any]) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        for name, value in options["scheduler"].items():
            setattr(scheduler, name, value)
        self._options = options
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            options["model"], scheduler, "CPU", options["device"]
        )
        self._num_requests = 0
        self.about = {"version": openvino_genai.__version__.partition("-")[0]}

    def generate(self, prompts: Prompts, max_tokens: int) -> Timing:
        config = openvino_genai.GenerationConfig(
            max_new_tokens=max_tokens, ignore_eos=True, do_sample=False
        )
        started = time.perf_counter()
        handles = [self._add(prompt, config) for prompt in prompts]
        waiting, count, first = set(range(len(handles))), 0, 0.0
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for index, handle in enumerate(handles):
                if handle.can_read():
                    count += sum(len(o.generated_ids) for o in handle.read().values())
                    waiting.discard(index)
            if not waiting and not first:
                first = time.perf_counter()
        return Timing(time.perf_counter() - started, first - started, count)

    def _add(self, prompt: list[int], config: Any) -> Any:
        self._num_requests += 1
        ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
        return self._pipeline.add_request(self._num_requests, ids, config)

    def score(self, windows: Prompts, path: str) -> None:
        """By the same model and properties in OpenVINO itself: GenAI hands out no logits."""
        from benchmarks.peers.scores import save

        model = openvino.Core().read_model(f"{self._options['model']}/openvino_model.xml")
        compiled = openvino.Core().compile_model(model, "CPU", self._options["device"])
        request = compiled.create_infer_request()
        save(path, (_logits(request, window) for window in windows))


def _logits(request: Any, window: list[int]) -> Any:
    ids = np.array([window], dtype=np.int64)
    known = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.arange(len(window), dtype=np.int64)[None],
        "beam_idx": np.zeros(1, dtype=np.int32),
    }
    inputs = {name for port in request.model_inputs for name in port.get_names()}
    request.reset_state()
    request.infer({name: value for name, value in known.items() if name in inputs})
    return np.array(request.get_output_tensor(0).data[0], dtype=np.float32)


if __name__ == "__main__":
    serve(OpenVinoEngine)
