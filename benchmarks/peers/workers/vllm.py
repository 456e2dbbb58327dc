"""vLLM's engine for CPUs, driven step by step, without text.

``options``: ``model`` (a Hugging Face directory), and ``engine`` (arguments of ``EngineArgs``).
"""

from __future__ import annotations

import time
from typing import Any

import vllm
from vllm import SamplingParams

from benchmarks.peers.protocol import Prompts, Timing, serve


class VllmEngine:
    def __init__(self, options: dict[str, Any]) -> None:
        self._vocab_size = options["vocab_size"]
        self._llm = vllm.LLM(model=options["model"], skip_tokenizer_init=True, **options["engine"])
        self._engine = self._llm.llm_engine
        self._num_requests = 0
        self.about = {"version": vllm.__version__}

    def generate(self, prompts: Prompts, max_tokens: int) -> Timing:
        params = SamplingParams(
            temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False
        )
        started = time.perf_counter()
        waiting = {self._add(prompt, params) for prompt in prompts}
        count, first = 0, 0.0
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                waiting.discard(output.request_id)
                if output.finished:
                    count += len(output.outputs[0].token_ids)
            if not waiting and not first:
                first = time.perf_counter()
        return Timing(time.perf_counter() - started, first - started, count)

    def _add(self, prompt: list[int], params: SamplingParams) -> str:
        self._num_requests += 1
        name = f"peer-{self._num_requests}"
        self._engine.add_request(name, {"prompt_token_ids": prompt}, params)
        return name

    def score(self, windows: Prompts, path: str) -> None:
        """Write those of the most likely tokens; what is left is spread over the others."""
        from benchmarks.peers.scores import MOST_LIKELY, filled, save

        params = SamplingParams(
            temperature=0.0, max_tokens=1, prompt_logprobs=MOST_LIKELY, detokenize=False
        )

        def scored(window: list[int]) -> Any:
            output = self._llm.generate({"prompt_token_ids": window}, params, use_tqdm=False)[0]
            rows = [
                {token: entry.logprob for token, entry in row.items()}
                for row in output.prompt_logprobs[1:]
            ]
            return filled(rows, len(window), self._vocab_size)

        save(path, (scored(window) for window in windows))


if __name__ == "__main__":
    serve(VllmEngine)
