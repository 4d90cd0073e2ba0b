"""Adam against torch's optimizer."""

from __future__ import annotations

import pytest
import torch
from graphs import seeded
from torch import Tensor, nn
from torch.testing import assert_close

from dysat.nn.adam import Adam, clip_gradients, gradient, in_use, only_rows, rows_of
from dysat.nn.ops.sparse import look_up
from dysat.sampling.blocks import Pattern


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


# Tables of which only the rows in use are updated


def tables(rows: int = 9) -> tuple[nn.Parameter, nn.Parameter]:
    """Two equal tables; of the second, only rows in use are updated."""
    whole, marked = (nn.Parameter(torch.randn(rows, 3, generator=seeded(1))) for _ in range(2))
    only_rows(marked)
    return whole, marked


def looked_up(table: Tensor) -> Tensor:
    """A sum that uses rows 2, 5 and 7, some of them more than once and in two look-ups."""
    scale = torch.tensor([[1.0], [0.0], [2.0], [3.0]])
    first = look_up(table, Pattern.lookup(torch.tensor([5, 2, 5, 7]), len(table)), scale)
    second = look_up(table, Pattern.lookup(torch.tensor([7, 2]), len(table)))
    return first.square().sum() + second.exp().sum()


def test_a_gradient_of_rows_is_that_of_the_whole_table() -> None:
    whole, marked = tables()
    values = [looked_up(table) for table in (whole, marked)]
    assert torch.equal(*values)
    for value in values:
        value.backward()  # type: ignore[no-untyped-call]
    assert whole.grad is not None and marked.grad is not None and marked.grad.is_sparse
    assert gradient(marked).shape == (3, 3) and rows_of(marked).tolist() == [2, 5, 7]
    assert_close(marked.grad.to_dense(), whole.grad)
    assert torch.equal(in_use(marked), marked.detach()[[2, 5, 7]]) and torch.equal(in_use(whole), whole.detach())


def test_an_unused_table_has_an_empty_gradient() -> None:
    _, marked = tables()
    assert gradient(marked).shape == in_use(marked).shape == (0, 3)
    before, adam = marked.detach().clone(), Adam([marked], 0.1)
    adam.step()
    assert torch.equal(marked, before)


def test_updates_of_rows_equal_those_of_torch() -> None:
    """As in torch's SparseAdam, a row that is not used keeps its value and its moments."""
    _, ours = tables()
    theirs = nn.Parameter(ours.detach().clone())
    adam, reference = Adam([ours], 0.05), torch.optim.SparseAdam([theirs], lr=0.05)
    for number in range(5):
        rows = torch.tensor([[2, 5, 2], [5, 7, 7], [0, 0, 1]][number % 3])
        before = ours.detach().clone()
        for table, optimizer in ((ours, adam), (theirs, reference)):
            optimizer.zero_grad()  # type: ignore[attr-defined]
            torch.nn.functional.embedding(rows, table, sparse=True).square().sum().backward()
            optimizer.step()  # type: ignore[attr-defined]
        assert_close(ours, theirs)
        unused = [row for row in range(9) if row not in rows.tolist()]
        assert torch.equal(ours[unused], before[unused]) and not torch.equal(ours[rows], before[rows])
    assert_close(adam.state[ours]["exp_avg_sq"], reference.state[theirs]["exp_avg_sq"])
    assert int(adam.state[ours]["step"]) == 5


def test_the_first_update_is_that_of_the_whole_table() -> None:
    whole, marked = tables()
    for table in (whole, marked):
        looked_up(table).backward()  # type: ignore[no-untyped-call]
        Adam([table], 0.1).step()
    assert_close(marked, whole)


@pytest.mark.parametrize("most", [0.1, 1e9])
def test_gradients_of_rows_are_clipped_with_the_others(most: float) -> None:
    clipped = []
    for table in tables():
        other = nn.Parameter(torch.tensor([1.0, 2.0]))
        (looked_up(table) + other.square().sum()).backward()  # type: ignore[no-untyped-call]
        clip_gradients([table, other, nn.Parameter(torch.ones(2))], most)
        assert table.grad is not None and other.grad is not None
        clipped.append((table.grad.to_dense(), other.grad))
    for whole, marked in zip(*clipped, strict=True):
        assert_close(marked, whole)
    norm = torch.cat([grad.flatten() for grad in clipped[1]]).norm()
    assert norm <= 1.001 * most and (most > 1 or norm > 0.99 * most)
