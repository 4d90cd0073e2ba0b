"""Adam against torch's optimizer."""

from __future__ import annotations

import pytest
import torch
from graphs import seeded
from torch import nn

from dysat.nn.adam import Adam


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_torch_bit_for_bit(device: str, dtype: torch.dtype) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    generator = seeded(3)
    first = [torch.randn(shape, generator=generator, dtype=dtype).to(device) for shape in ((5,), (3, 4), ())]
    ours, theirs = ([nn.Parameter(value.clone()) for value in first] for _ in range(2))
    adam, reference = Adam(ours, 0.01), torch.optim.Adam(theirs, lr=0.01, fused=True, capturable=device == "cuda")
    for number in range(4):
        adam.zero_grad()
        reference.zero_grad(set_to_none=True)
        for p, q in list(zip(ours, theirs, strict=True))[number == 1 :]:  # the first has no gradient in step 1
            p.grad = torch.randn(p.shape, generator=generator, dtype=dtype).to(device)
            q.grad = p.grad.clone()
        adam.step()
        reference.step()
        assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))
    for p, q in zip(ours, theirs, strict=True):
        assert adam.state[p].keys() == reference.state[q].keys()
        assert all(torch.equal(value, reference.state[q][name]) for name, value in adam.state[p].items())
