"""BlackJAX's samplers with BlackJAX's own adaptation and defaults.

NUTS adapts each chain by itself, as its documentation runs several chains;
ChEES and MEADS adapt over all of them.
References: Carpenter et al. (2017), windows; Hoffman, Radul and Sountsov
(2021), ChEES; Hoffman and Sountsov (2022), MEADS.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from experiments.framework.registry import METHODS
from experiments.methods.peers_jax import Algorithm
from experiments.methods.peers_jax import JaxPeer
from experiments.targets.jax_density import import_peer

__all__ = ['BlackjaxPeer']

# ChEES has no defaults for these two; they are those of BlackJAX's own test.
_CHEES_STEP_SIZE = 0.1
_CHEES_OPTIMIZER = dict(learning_rate=0.5, b1=0.0, b2=0.95)


class BlackjaxPeer(JaxPeer):
  """Base of BlackJAX's samplers."""

  def build(self, target, options):
    import_peer('blackjax')
    return super().build(target, options)


@METHODS.register('blackjax_nuts')
class BlackjaxNuts(BlackjaxPeer):
  """BlackJAX's NUTS, step size and mass matrix in growing windows."""

  mass_matrix: Literal['dense', 'diagonal'] = 'dense'
  target_accept_prob: float = Field(0.8, gt=0, lt=1)

  def default_label(self):
    return f'BlackJAX NUTS ({self.mass_matrix})'

  def build(self, target, options):
    self.check_adaptation(options, 20)
    return super().build(target, options)

  def algorithm(self, log_prob, options, num_results):
    blackjax, jax = import_peer('blackjax'), import_peer('jax')
    warmup = blackjax.window_adaptation(
      blackjax.nuts,
      log_prob,
      is_mass_matrix_diagonal=self.mass_matrix == 'diagonal',
      target_acceptance_rate=self.target_accept_prob,
      adaptation_info_fn=_num_steps_taken,
    )

    def adapt(key, starts):
      keys = jax.random.split(key, len(starts))
      adapted, taken = jax.vmap(
        lambda key, x: warmup.run(key, x, options.num_adaptation_steps)
      )(keys, starts)
      return adapted, taken.T

    def step(key, state, parameters):
      return blackjax.nuts(log_prob, **parameters).step(key, state)

    def draw(key, adapted):
      return _scan(
        lambda keys, states: jax.vmap(step)(keys, states, adapted.parameters),
        key,
        adapted.state,
        num_results,
      )

    return Algorithm(adapt, draw)


@METHODS.register('blackjax_chees')
class BlackjaxChees(BlackjaxPeer):
  """BlackJAX's HMC with trajectory length by ChEES, unit mass."""

  def default_label(self):
    return 'BlackJAX ChEES'

  def algorithm(self, log_prob, options, num_results):
    blackjax, optax = import_peer('blackjax'), import_peer('optax')
    jnp = import_peer('jax.numpy')
    dynamic_hmc = import_peer('blackjax.mcmc.dynamic_hmc')
    num_adaptation_steps = options.num_adaptation_steps
    warmup = blackjax.chees_adaptation(
      log_prob, options.num_chains, adaptation_info_fn=_chees_info
    )

    def adapt(key, starts):
      adapted, (taken, log_length, log_step_size) = warmup.run(
        key,
        starts,
        _CHEES_STEP_SIZE,
        optax.adam(**_CHEES_OPTIMIZER),
        num_adaptation_steps,
        max_sampling_steps=num_results,
      )
      # The functions among its parameters cannot leave a compiled program.
      mean_steps = jnp.exp(log_length[-1] - log_step_size[-1])
      return (adapted.state, jnp.exp(log_step_size[-1]), mean_steps), taken

    def draw(key, carry):
      states, step_size, mean_steps = carry
      bits = np.ceil(np.log2(num_adaptation_steps + num_results))

      def num_integration_steps(index):
        jitter = dynamic_hmc.halton_sequence(index, bits)
        return jnp.asarray(jnp.ceil(jitter * mean_steps), int)

      algorithm = blackjax.dynamic_hmc(
        log_prob,
        step_size,
        jnp.ones(states.position.shape[-1], states.position.dtype),
        next_random_arg_fn=lambda index: index + 1,
        integration_steps_fn=num_integration_steps,
      )
      return _scan(_over_chains(algorithm), key, states, num_results)

    return Algorithm(adapt, draw)


@METHODS.register('blackjax_meads')
class BlackjaxMeads(BlackjaxPeer):
  """BlackJAX's generalized HMC tuned by MEADS: one gradient a step."""

  def default_label(self):
    return 'BlackJAX MEADS'

  def algorithm(self, log_prob, options, num_results):
    blackjax, jnp = import_peer('blackjax'), import_peer('jax.numpy')
    warmup = blackjax.meads_adaptation(
      log_prob, options.num_chains, adaptation_info_fn=_one_gradient
    )

    def adapt(key, starts):
      adapted, taken = warmup.run(key, starts, options.num_adaptation_steps)
      taken = jnp.broadcast_to(taken[:, None], [len(taken), len(starts)])
      return adapted, taken

    def draw(key, adapted):
      algorithm = blackjax.ghmc(log_prob, **adapted.parameters)
      return _scan(_over_chains(algorithm), key, adapted.state, num_results)

    return Algorithm(adapt, draw)


def _num_steps_taken(state, info, adaptation_state):
  del state, adaptation_state
  return info.num_integration_steps


def _chees_info(state, info, adaptation_state):
  """Returns what the last moving averages and the gradients are read from."""
  del state
  return (
    info.num_integration_steps,
    adaptation_state.log_trajectory_length_moving_average,
    adaptation_state.log_step_size_moving_average,
  )


def _one_gradient(state, info, adaptation_state):
  del state, info, adaptation_state
  return 1


def _over_chains(algorithm):
  return import_peer('jax').vmap(algorithm.step)


def _scan(step, key, states, num_results):
  """Returns the dict of `Algorithm.draw`; step takes keys and all states."""
  jax = import_peer('jax')
  num_chains = len(states.position)

  def one_step(states, key):
    states, info = step(jax.random.split(key, num_chains), states)
    drawn = {
      'states': states.position,
      'target_log_prob': states.logdensity,
      'diverging': info.is_divergent,
      'leapfrogs_taken': info.num_integration_steps,
    }
    return states, drawn

  return jax.lax.scan(one_step, states, jax.random.split(key, num_results))[1]
