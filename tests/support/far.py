"""A device that is not there: tensors that lie on it, computed by the CPU.

They refuse to meet tensors of the CPU, as a GPU's do, and it is counted how often the host looks at them, which would
make it wait, and how often something is sent to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "far"
ops = torch.ops.aten
READS = {ops._local_scalar_dense.default, ops.nonzero.default, ops.equal.default, ops.bincount.default}
READS |= {ops.masked_select.default, ops._unique2.default}
BY_INDEX = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
JOINS = {"stack", "cat"}  # these take no scalar of the CPU


class Far(Tensor):
    """A tensor of the device; ``near`` holds its values."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> Far:
        """Wrap values. Torch itself takes the tensor for one without memory; only who asks is told of the device."""
        with torch.inference_mode(False), no_dispatch():
            shape = torch.empty_strided(near.size(), near.stride(), dtype=near.dtype, device="meta")
        made: Far = Tensor._make_subclass(  # type: ignore[attr-defined]
            cls, shape, False, dispatch_device=True, device_for_backend_keys=torch.device(NAME)
        )
        made.near = near
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Far({self.near!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {}, Counter())


def call(func: Any, args: Any, kwargs: dict[str, Any], traffic: Counter[str]) -> Any:
    """An operator of which some tensors, or the result, are on the device."""
    if func is torch.ops.prim.device.default:
        return torch.device(NAME, 0)
    leaves = tree_leaves((args, kwargs))
    far = {id(leaf.near): leaf for leaf in leaves if isinstance(leaf, Far)}
    name = func.overloadpacket.__name__
    strangers = [leaf for leaf in leaves if type(leaf) is Tensor and (leaf.dim() > 0 or name in JOINS)]
    if name in BY_INDEX and isinstance(args[0], Far):  # of the CPU, positions may be
        strangers = [leaf for leaf in strangers if all(leaf is not i for i in args[1])]
    target = kwargs.get("device")
    to_far = target is not None and torch.device(target).type == NAME
    moves = func in (ops._to_copy.default, ops.copy_.default)
    if far and strangers and not moves:
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, but some are far and some are not")
    if moves:
        source = args[-1] if func is ops.copy_.default else args[0]
        landing = isinstance(args[0], Far) if func is ops.copy_.default else to_far or (target is None and bool(far))
        if isinstance(source, Far) != landing:
            traffic["sent" if landing else "read"] += 1
    else:
        landing = bool(far) or to_far
        chosen = name in BY_INDEX and any(i is not None and i.dtype == torch.bool for i in args[1])
        traffic.update(["read"] if (func in READS or chosen) and far else [])
    near_args, near_kwargs = tree_map(lambda x: x.near if isinstance(x, Far) else x, (args, kwargs))
    if to_far:
        near_kwargs["device"] = "cpu"
    done = func(*near_args, **near_kwargs)

    def wrapped(x: Any) -> Any:
        if not landing or not isinstance(x, Tensor) or isinstance(x, Far):
            return x
        return far.get(id(x)) if id(x) in far else Far(x)

    return tree_map(wrapped, done)


class Device(TorchDispatchMode):
    """Makes tensors of the device where they are asked for; ``traffic`` counts what was read and what was sent."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.traffic: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        target = kwargs.get("device")
        to_far = target is not None and torch.device(target).type == NAME
        if to_far or any(isinstance(leaf, Far) for leaf in tree_leaves((args, kwargs))):
            return call(func, args, kwargs, self.traffic)
        return func(*args, **kwargs)


@contextmanager
def far_device() -> Iterator[Device]:
    """The device, known to torch."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    if torch._C._get_privateuse1_backend_name() != NAME:
        _setup_privateuseone_for_python_backend(NAME)  # type: ignore[no-untyped-call]
        getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16]  # checkpointing asks, in later tests
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=...) then shows the copy that it makes
    try:
        # torch has threads for the devices that were there when it first went backward: this one is not among them
        with torch.autograd.set_multithreading_enabled(False), Device() as made:
            yield made
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
