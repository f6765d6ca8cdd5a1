"""Training state as a flat table of tensors and plain values, copied for saving and put back after loading."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from rackyard.errors import CheckpointError

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Size, torch.dtype, torch.device)


class FlatState:
    """`leaves` by dotted path: tensors are the caller's own, everything else is a plain value.

    Raises CheckpointError where the state holds what can't be saved without pickling code.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.root = state
        self.leaves: dict[str, Any] = {}
        # The state dicts of stateful objects: their tensors are the live ones, and are loaded in place.
        self._bodies: dict[str, Any] = {}
        self._walk("", state)

    def _walk(self, path: str, node: Any) -> None:
        if not isinstance(node, Mapping | torch.Tensor) and isinstance(node, Stateful):
            body = node.state_dict()
            self._bodies[path] = body
            self._walk(path, body)
        elif _is_branch(node):
            for key, child in _children(node):
                self._walk(_join(path, key), child)
        elif path in self.leaves:
            raise CheckpointError(
                "two entries of the training state have one name", where=path, fix="rename one of them"
            )
        else:
            if isinstance(node, Mapping):  # an empty one, of whatever kind
                node = {}
            if not isinstance(node, torch.Tensor):
                check_plain(path, node)
            self.leaves[path] = node

    def staged(self) -> dict[str, Any]:
        """A copy in host memory that training can't change any more."""
        return {path: _staged(leaf) for path, leaf in self.leaves.items()}

    def put_back(self, loaded: Mapping[str, Any]) -> None:
        """Set the plain values from `loaded`; tensors have been loaded in place already."""
        self._restore("", self.root, loaded)

    def _restore(self, path: str, node: Any, loaded: Mapping[str, Any]) -> Any:
        if path in self._bodies:
            node.load_state_dict(self._restore_branch(path, self._bodies[path], loaded))
            return node
        return self._restore_branch(path, node, loaded)

    def _restore_branch(self, path: str, node: Any, loaded: Mapping[str, Any]) -> Any:
        if not _is_branch(node):
            value = loaded.get(path, node)
            return node if isinstance(node, torch.Tensor) or (isinstance(node, Mapping) and not value) else value
        changed = {key: self._restore(_join(path, key), child, loaded) for key, child in _children(node)}
        if isinstance(node, tuple):
            return tuple(changed.values())
        for key, child in changed.items():
            # Only where it changed: a mapping may be read-only as long as its tensors can be loaded in place.
            if node[key] is not child:
                node[key] = child
        return node

    def untouched_optimizers(self) -> Iterator[torch.optim.Optimizer]:
        """Optimizers that have not made a step yet, so that their moments do not exist to be loaded into."""
        yield from _optimizers(self.root)


def check_plain(path: str, value: Any) -> None:
    """Raises CheckpointError unless `value` can be written and read without pickling code."""
    if isinstance(value, torch.Tensor) or type(value) in _PLAIN:
        return
    if type(value) is dict:
        for key, child in value.items():
            check_plain(_join(path, key), child)
    elif type(value) in {list, tuple, set}:
        for index, child in enumerate(value):
            check_plain(_join(path, index), child)
    else:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise CheckpointError(
            "the training state holds something that can't be saved safely",
            where=path,
            why=f"it is a {kind}, which would have to be unpickled, and that can run code",
            fix="save tensors, numbers, strings, lists and dicts, or an object with state_dict and load_state_dict",
        )


def staged_plain(value: Any) -> Any:
    """A copy of a checked plain value, its tensors in host memory."""
    if isinstance(value, torch.Tensor):
        return _staged(value)
    if isinstance(value, dict):
        return {key: staged_plain(child) for key, child in value.items()}
    if type(value) in {list, tuple, set}:
        return type(value)(staged_plain(child) for child in value)
    return value


def initialise(optimizer: torch.optim.Optimizer) -> None:
    """Make an untouched optimizer's moments by one step of zero gradients at rate zero, which changes no weight."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        if "lr" in group:
            group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], torch.Tensor) else 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)


def _optimizers(node: Any) -> Iterator[torch.optim.Optimizer]:
    if isinstance(node, torch.optim.Optimizer):
        if not node.state:
            yield node
    elif isinstance(node, Mapping):
        for child in node.values():
            yield from _optimizers(child)


def _is_branch(node: Any) -> bool:
    """Whether `node` is walked into: mappings that have entries, and sequences that hold tensors somewhere."""
    if isinstance(node, Mapping):
        return len(node) > 0
    return isinstance(node, list | tuple) and type(node) in {list, tuple} and any(_holds_more(c) for c in node)


def _holds_more(node: Any) -> bool:
    if isinstance(node, torch.Tensor | Mapping):
        return True
    if isinstance(node, list | tuple):
        return any(_holds_more(child) for child in node)
    return isinstance(node, Stateful)


def _children(node: Any) -> Iterator[tuple[Any, Any]]:
    return iter(node.items()) if isinstance(node, Mapping) else iter(enumerate(node))


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _staged(leaf: Any) -> Any:
    if isinstance(leaf, DTensor):
        # The local shard only, and without DTensor.from_local, which would move it back to the mesh's device.
        return DTensor(_copied(leaf.to_local()), leaf._spec, requires_grad=False)
    if isinstance(leaf, torch.Tensor):
        return _copied(leaf)
    return staged_plain(leaf)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.clone() if tensor.device.type == "cpu" else tensor.cpu()
