"""What can go wrong between the cpu executor and the system it runs on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headway.assembly import kv_bytes_per_block
from headway.errors import ConfigError
from headway.executors.cpu import CpuExecutor
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

pytest.importorskip("headway.kernels._native", reason="the native kernels are not built")


def make(**options: Any) -> CpuExecutor:
    return CpuExecutor(
        tiny_checkpoint(tiny_config()), **{"num_blocks": 4, "block_size": 16, **options}
    )


def test_a_pool_beyond_all_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="no memory for a KV cache of 1000000000 blocks of 4096"):
        make(num_blocks=10**9, block_size=4096)


@pytest.mark.parametrize("name", ["num_blocks", "num_swap_blocks", "block_size", "num_threads"])
def test_numbers_that_no_machine_has_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="must be at most"):
        make(**{name: 2**31})


THREADS = """
import resource
from headway.errors import ConfigError
from headway.executors.cpu import CpuExecutor
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

checkpoint = tiny_checkpoint(tiny_config())
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
try:
    CpuExecutor(checkpoint, num_blocks=4, block_size=16, num_threads=2000)
except ConfigError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are the system's own")
def test_threads_that_cannot_start_are_an_error_and_no_crash() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "can't be started" in done.stdout or "no memory" in done.stdout


FORK = """
import os
from headway.core.plan import NewSequence, RequestId, SequenceId, Slice, StepPlan, TableUpdate
from headway.core.sampling import SamplingParams
from headway.executors.cpu import CpuExecutor
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

executor = CpuExecutor(
    tiny_checkpoint(tiny_config()), num_blocks=20_000, block_size=16, num_threads=3
)
one = SequenceId(0)
new = NewSequence(one, RequestId("a"), 0, tuple(range(90)), SamplingParams(max_tokens=2))
plan = StepPlan(0, (Slice(one, 0, 90, True),), (new,), (TableUpdate(one, 0, tuple(range(10))),))
token = executor.run(plan).tokens[one].token_id
child = os.fork()
again = StepPlan(1, (Slice(one, 90, 1, True),))
if child == 0:
    print(executor.run(again).tokens[one].token_id, flush=True)
    del executor
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(executor.run(again).tokens[one].token_id)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_process_computes_alone_and_ends() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    child, parent = done.stdout.split()
    assert child == parent


RESIDENT = """
import mmap
import sys
from headway.core.plan import NewSequence, RequestId, SequenceId, Slice, StepPlan, TableUpdate
from headway.core.sampling import SamplingParams
from headway.executors.cpu import CpuExecutor
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

MADV_POPULATE_WRITE = 23
try:
    mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).madvise(MADV_POPULATE_WRITE)
except OSError:
    sys.exit("this system gives no memory ahead of its use")

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE

one = SequenceId(0)
new = NewSequence(one, RequestId("a"), 0, tuple(range(90)), SamplingParams(max_tokens=9))
blocks = TableUpdate(one, 0, tuple(range(10)))
for is_made_resident in (False, True):
    executor = CpuExecutor(
        tiny_checkpoint(tiny_config(num_layers=3)), num_blocks=NUM_BLOCKS, block_size=16
    )
    plan = StepPlan(0, (Slice(one, 0, 90, True),), (new,), (blocks,))
    tokens = [executor.run(plan).tokens[one].token_id]
    if is_made_resident:
        executor.make_resident()
        print(resident_bytes())
    for n in range(4):
        plan = StepPlan(n + 1, (Slice(one, 90 + n, 1, True),))
        tokens.append(executor.run(plan).tokens[one].token_id)
    print(tokens)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives memory ahead of its use")
def test_all_memory_can_be_had_at_once_and_nothing_in_it_changes() -> None:
    config = tiny_config(num_layers=3)
    num_blocks = 30_000
    pool_bytes = num_blocks * kv_bytes_per_block(config, 16, "bfloat16")
    code = RESIDENT.replace("NUM_BLOCKS", str(num_blocks))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    if "ahead of its use" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    plain, resident_bytes, resident = done.stdout.splitlines()
    assert plain == resident
    assert int(resident_bytes) > pool_bytes > 16 << 20


STACK = """
import threading
threading.stack_size(256 * 1024)
from headway.testing.tiny_models import tiny_checkpoint, tiny_config
from headway.executors.cpu import CpuExecutor
from headway.kernels.ops import Rows

def work():
    executor = CpuExecutor(tiny_checkpoint(tiny_config()), num_blocks=4, block_size=16)
    ops = executor.ops
    step = ops.prepare([Rows(range(40), 0, range(4))])
    model = executor._executor._model
    print(model.forward(step).shape[0])

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_small_stacks_suffice() -> None:
    """As threads have them on some systems."""
    done = subprocess.run([sys.executable, "-c", STACK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "40\n"
