"""What of a budget of gradients an adaptation may take."""

from tfp_adaptive.posterior import chains as chains_lib

__all__ = ['affordable', 'needed', 'words']

_COST_OF_A_DRAW = 4.0  # Gradients, of a block that comes with an adaptation.


def affordable(settings, spent, num_steps, cost):
  """Returns how many steps may adapt, at most so many.

  Args:
    settings: `Settings`.
    spent: Gradients so far.
    num_steps: Of the adaptation.
    cost: Gradients that are to be left for each of them.
  """
  size = chains_lib.block_size(settings.num_draws, settings.max_gradients)
  left = settings.max_gradients - spent - _COST_OF_A_DRAW * size
  return min(num_steps, int(left / cost))


def needed(settings, num_steps, cost):
  """Returns the gradients that so many steps ask to be left."""
  size = chains_lib.block_size(settings.num_draws)
  return _COST_OF_A_DRAW * size + num_steps * cost


def words(gradients):
  """Returns words on the budget that an adaptation takes."""
  thousands = -(-gradients // 1000)
  return f'`max_gradients`: to adapt again takes {thousands:.0f}_000 or more'
