"""A recurrent network that predicts the next token of a text."""

from torch import Tensor, nn

from .spec import ModelSpec


class CharGru(nn.Module):
    """An embedding, one gated recurrent layer, and a linear head at every place."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.recurrent = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores of the next token, shape (n, vocabulary, length)."""
        states, _ = self.recurrent(self.embedding(tokens))
        scores: Tensor = self.head(states)
        return scores.movedim(2, 1)


def char_gru(spec: ModelSpec) -> CharGru:
    """Build a network of `hidden` units for sequences of token ids."""
    if len(spec.input_shape) != 1 or not spec.tokens:
        raise spec.misfit("sequences of token ids (length,)")
    return CharGru(spec.num_classes, spec.hidden)
