"""The linear head of a model: its last layer, which produces the logits.

Selection methods look at the gradients of this layer only: for cross-entropy they have a closed
form in the head's inputs. A user's model that registers or computes something after it is refused,
because the closed form would be wrong for it.
"""

from collections.abc import Callable

from torch import Tensor, nn

from ..errors import TaskError


def linear_head(model: nn.Module) -> str:
    """Return the dotted name of the last layer, which must be an `nn.Linear`."""
    name, last = "", model
    while children := list(last.named_children()):
        part, last = children[-1]
        name = f"{name}.{part}" if name else part
    if not isinstance(last, nn.Linear):
        raise TaskError(
            f"the model's last layer is {type(last).__name__} {name!r}; expected torch.nn.Linear, "
            f"defined after all other layers and producing the logits"
        )
    if not name:
        raise TaskError(
            "the model is a bare torch.nn.Linear; expected it inside torch.nn.Sequential"
        )
    return name


def has_output_bias(model: nn.Module) -> bool:
    """Return whether the model ends with a linear layer that has a bias."""
    try:
        return model.get_submodule(linear_head(model)).bias is not None
    except TaskError:
        return False


def split_at_head(model: nn.Module) -> tuple[Callable[[Tensor], Tensor], nn.Linear]:
    """Split a model into body and head with ``head(body(x)) == model(x)``."""
    head = model.get_submodule(linear_head(model))
    assert isinstance(head, nn.Linear)  # linear_head guarantees it
    if isinstance(model, nn.Sequential) and model[-1] is head:
        return model[:-1], head
    return lambda x: _input_of(head, model, x), head


def _input_of(head: nn.Linear, model: nn.Module, x: Tensor) -> Tensor:
    """Run the model and return what its head was given."""
    calls: list[tuple[Tensor, Tensor]] = []
    hook = head.register_forward_hook(lambda _, inputs, output: calls.append((inputs[0], output)))
    try:
        result = model(x)
    finally:
        hook.remove()
    if len(calls) != 1 or calls[0][1] is not result:
        raise TaskError(
            "the model's output is not the output of its last layer; "
            "expected logits straight from the last torch.nn.Linear, called once"
        )
    return calls[0][0]
