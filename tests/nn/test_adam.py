"""Adam against torch's own."""

from __future__ import annotations

import pytest
import torch
from graphs import seeded
from torch import nn

from dysat.nn.adam import Adam


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adam_is_torchs_to_the_bit(device: str, dtype: torch.dtype) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    here = seeded(3)
    first = [torch.randn(shape, generator=here, dtype=dtype).to(device) for shape in ((5,), (3, 4), ())]
    mine, theirs = ([nn.Parameter(value.clone()) for value in first] for _ in range(2))
    adam, torchs = Adam(mine, 0.01), torch.optim.Adam(theirs, lr=0.01, fused=True, capturable=device == "cuda")
    for number in range(4):
        adam.zero_grad()
        torchs.zero_grad(set_to_none=True)
        for p, q in list(zip(mine, theirs, strict=True))[number == 1 :]:  # one without a gradient, once
            p.grad = torch.randn(p.shape, generator=here, dtype=dtype).to(device)
            q.grad = p.grad.clone()
        adam.step()
        torchs.step()
        assert all(torch.equal(p, q) for p, q in zip(mine, theirs, strict=True))
    for p, q in zip(mine, theirs, strict=True):
        assert adam.state[p].keys() == torchs.state[q].keys()
        assert all(torch.equal(value, torchs.state[q][name]) for name, value in adam.state[p].items())
