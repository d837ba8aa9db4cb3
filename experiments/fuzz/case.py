"""One broken input, and what must become of it."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

__all__ = ['ACCEPT', 'EITHER', 'REFUSE', 'Case', 'pick']

# What a mutation asks of the loader. EITHER: a refusal, or a value that the
# case's own check finds right; a flipped byte may be one of a comment.
ACCEPT = 'accept'
REFUSE = 'refuse'
EITHER = 'either'


class Case(NamedTuple):
  """An input written to disk, and the way a user's command reads it."""

  mutation: str
  expected: str
  # The input as a person wants to see it.
  given: str
  # Reads the input as the commands do. Raises one of the project's errors
  # where it is refused; else returns what is wrong with what was read, or None.
  load: Callable[[], Any]


def pick(rng, values):
  """Returns one entry of a sequence, as it is."""
  return values[int(rng.integers(len(values)))]
