"""What is asked of the options that all Hamiltonian proposals take."""

from tfp_adaptive.core import arguments
from tfp_adaptive.core import hessian_product as hessian

__all__ = ['check']


def check(num_leapfrog_steps, hessian_product, continue_prob):
  """Refuses a count, a method or a probability that is not allowed."""
  is_int = isinstance(num_leapfrog_steps, int) and not isinstance(
    num_leapfrog_steps, bool
  )
  if not is_int or num_leapfrog_steps < 1:
    raise ValueError(
      '`num_leapfrog_steps` must be a positive int, but got '
      f'{num_leapfrog_steps!r}. Write for example `num_leapfrog_steps=5`.'
    )
  if hessian_product not in hessian.METHODS:
    raise ValueError(
      f'`hessian_product` must be one of {hessian.METHODS}, but got '
      f'{hessian_product!r}.'
    )
  arguments.check_inner_share(
    continue_prob, 'continue_prob', 'The usual value is 0.5.'
  )
