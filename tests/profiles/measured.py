"""Small files of measurements, of the forms that are published."""

from __future__ import annotations

from pathlib import Path

LAYERS = {
    **{"embedding": 1, "final_layernorm": 2, "layernorm": 3, "qkv_proj": 5, "rotary_emb": 7},
    **{"o_proj": 11, "gate_up_proj": 13, "act_fn": 17, "down_proj": 19},
}


def write_bundle(folder: Path) -> None:
    """A bundle in which each call takes a time in proportion to what it is of.

    Attention is 1 us a new token and one in 10 cached ones, 2 a decode and one in 100 positions of
    context, and in one call twice as much for the decodes.
    """
    dense = ["layer,tokens,time_us"]
    dense += [f"{name},{n},{us * n}" for name, us in LAYERS.items() for n in (1, 2048)]
    rows = ["layer,sequences,time_us", "lm_head,1,1000", "lm_head,9,1000"]
    rows += [f"sampler,{n},{23 * n}" for n in (1, 9)]
    attention = ["prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"]
    for chunk in (0, 16, 2048):
        for cached in (0, 4000) if chunk else (0,):
            alone = chunk + cached / 10
            attention += [f"{chunk},{cached},0,0,{alone}"] if chunk else []
            for number in (1, 8):
                for context in (16, 8000):
                    part = (2 if chunk else 1) * number * (2 + context / 100)
                    attention.append(f"{chunk},{cached},{number},{context},{alone + part}")
    skew = ["pc,n_label,skew_rate_label,kv_big_label,kp_label,alpha,n_samples"]
    skew += ["0,n<=8,sr<=40%,kvB<=16k,kp=0,0.5,4", "0,n<=8,sr>70%,kvB<=16k,kp=0,0.25,4"]
    for name, lines in (
        ("dense.csv", dense),
        ("per_sequence.csv", rows),
        ("attention.csv", attention),
        ("skew_fit.csv", skew),
    ):
        (folder / name).write_text("\n".join(lines) + "\n")


HEADER = "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel"
ROWS = (
    *("m,a,512,1,128,100,50,2", "m,a,512,1,128,110,54,2", "m,a,512,1,128,900,99,2"),
    *("m,a,2048,1,128,410,58,2", "m,a,512,8,128,910,62,2"),
    "m,a,512,64,128,90,70,2",  # no such batch takes less than a smaller one
    *("m,a,512,1,8192,105,999,2", "m,b,512,1,128,1,1,4"),
)
