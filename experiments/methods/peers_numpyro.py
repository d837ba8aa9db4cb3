"""NumPyro's NUTS with NumPyro's own windowed adaptation and defaults.

Chains adapt each by itself and run one after another, as `numpyro.infer.MCMC`
runs them on one device. No heuristic searches for the step size, so every
gradient after the first is one of those counted.
References: Phan, Pradhan and Jankowiak (2019).
"""

from typing import Literal

from pydantic import Field

from experiments.framework.registry import METHODS
from experiments.methods.peers_jax import Algorithm
from experiments.methods.peers_jax import JaxPeer
from experiments.targets.jax_density import import_peer

__all__ = ['NumpyroNuts']


@METHODS.register('numpyro_nuts')
class NumpyroNuts(JaxPeer):
  """NumPyro's NUTS, step size and mass matrix in growing windows."""

  mass_matrix: Literal['dense', 'diagonal'] = 'dense'
  target_accept_prob: float = Field(0.8, gt=0, lt=1)

  def default_label(self):
    return f'NumPyro NUTS ({self.mass_matrix})'

  def build(self, target, options):
    import_peer('numpyro')
    self.check_adaptation(options, 20)
    return super().build(target, options)

  def algorithm(self, log_prob, options, num_results):
    infer, jax = import_peer('numpyro.infer'), import_peer('jax')
    num_adaptation_steps = options.num_adaptation_steps
    kernel = infer.NUTS(
      potential_fn=lambda x: -log_prob(x),
      dense_mass=self.mass_matrix == 'dense',
      target_accept_prob=self.target_accept_prob,
    )

    def adapt_one(given):
      key, start = given
      state = kernel.init(key, num_adaptation_steps, init_params=start)

      def one_step(state, _):
        state = kernel.sample(state, (), {})
        return state, state.num_steps

      return jax.lax.scan(one_step, state, length=num_adaptation_steps)

    def adapt(key, starts):
      keys = jax.random.split(key, len(starts))
      states, taken = jax.lax.map(adapt_one, (keys, starts))
      return states, taken.T

    def draw_one(state):
      def one_step(state, _):
        state = kernel.sample(state, (), {})
        drawn = {
          'states': state.z,
          'target_log_prob': -state.potential_energy,
          'diverging': state.diverging,
          'leapfrogs_taken': state.num_steps,
        }
        return state, drawn

      return jax.lax.scan(one_step, state, length=num_results)[1]

    def draw(key, states):
      del key  # A state carries its own.
      drawn = jax.lax.map(draw_one, states)
      return jax.tree.map(lambda part: part.swapaxes(0, 1), drawn)

    return Algorithm(adapt, draw)
