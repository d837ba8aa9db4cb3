"""What of a budget of gradients an adaptation may take."""

from tfp_adaptive.posterior import chains as chains_lib

__all__ = ['affordable', 'lacking']

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


def lacking(settings, spent, num_steps, cost):
  """Returns words on the budget of which so many steps are affordable."""
  size = chains_lib.block_size(settings.num_draws)
  total = spent + _COST_OF_A_DRAW * size + num_steps * cost
  thousands = -(-total // 1000)
  return f'`max_gradients`: to adapt again takes {thousands:.0f}_000 or more'
