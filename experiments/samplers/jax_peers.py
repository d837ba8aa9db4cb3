"""Samplers written in JAX, with their own adaptation and defaults.

A peer is an `Algorithm`, two pure functions over all chains. Both are compiled
before they run, so compiling, adapting and sampling are timed separately. JAX
is imported when a peer is built. JAX programs run in the target's precision and
on all cores of the process, like TensorFlow's programs.

BlackJAX's NUTS adapts each chain separately, as its documentation does. ChEES
and MEADS adapt over all chains. NumPyro's chains adapt separately and run one
after another, as in `numpyro.infer.MCMC` on one device. No heuristic searches
for NumPyro's step size, so every gradient after the first is counted.

References: Carpenter et al. (2017), windows; Hoffman, Radul and Sountsov
(2021), ChEES; Hoffman and Sountsov (2022), MEADS; Phan, Pradhan and Jankowiak
(2019), NumPyro.
"""

import time
from collections.abc import Callable
from typing import ClassVar
from typing import Literal
from typing import NamedTuple

import numpy as np

from experiments.samplers.base import Method
from experiments.samplers.base import MethodParameters
from experiments.samplers.windowed import Result
from experiments.targets import jax_density
from experiments.targets.jax_density import import_peer
from experiments.targets.registry import METHODS

# ChEES has no defaults for these two, which are from BlackJAX's own test.
_CHEES_STEP_SIZE = 0.1
_CHEES_OPTIMIZER = dict(learning_rate=0.5, b1=0.0, b2=0.95)


class Algorithm(NamedTuple):
  """A sampler of a density, for all chains."""

  # (key, starts [chains, d]) -> carry, gradients taken [n_adaptation, chains].
  adapt: Callable
  # (key, carry) -> dict of [num_results, chains, ...]: states,
  # target_log_prob, diverging and leapfrogs_taken.
  draw: Callable


class Peer(MethodParameters):
  """Base of the samplers that need a target's density in JAX."""

  is_peer: ClassVar[bool] = True
  # The package to import, and the fewest adaptation steps of its windows.
  package: ClassVar[str]
  least_adaptation: ClassVar[int] = 0

  def check_target(self, target):
    """Raises ValueError unless the target has a density in JAX."""
    super().check_target(target)
    if target.jax_log_prob_fn is None:
      raise ValueError(
        f'the method needs a density in JAX, but {target.name} is written in '
        'TensorFlow only. Give the target a jax_log_prob_fn, as in '
        'experiments/targets/jax_density.py.'
      )

  def check(self, options):
    """Imports the package; refuses too few adaptation steps."""
    import_peer('jax')
    import_peer(self.package)
    if options.num_adaptation_steps < self.least_adaptation:
      raise ValueError(
        f'num_adaptation_steps: {options.num_adaptation_steps} was given, but '
        f'{self.name} needs at least {self.least_adaptation} for its windows.'
      )


class JaxPeer(Peer):
  """Base of the peers that are JAX programs."""

  def algorithm(self, log_prob, options, num_results) -> Algorithm:
    """Returns the `Algorithm` for log_prob, x [d] -> []."""
    raise NotImplementedError

  def build(self, target, options):
    self.check(options)

    def make(num_results):
      return self.algorithm(target.jax_log_prob_fn(), options, num_results)

    return Method(
      None, None, None, sample_fn=compiled_sampler(make, target.dtype)
    )


def compiled_sampler(make_algorithm, dtype):
  """Returns a function with the keyword arguments of `tfpa.sample`.

  Args:
    make_algorithm: Function of the number of results that returns an
      `Algorithm`, called in the precision of the target.
  """
  programs = {}

  def sample_fn(init_state, num_results, seed, **unused):
    del unused  # `tfpa.sample` takes them.
    jax = import_peer('jax')
    seconds = dict.fromkeys(('compile', 'adaptation', 'sampling'), 0.0)
    with jax_density.precision(dtype):
      starts = jax.numpy.asarray(init_state, dtype)
      keys = _keys(jax, seed)
      shape = (num_results, *starts.shape)
      if shape not in programs:
        begin = time.perf_counter()
        programs[shape] = _compile(
          jax, make_algorithm(num_results), keys, starts
        )
        seconds['compile'] = time.perf_counter() - begin
      adapt, draw = programs[shape]
      begin = time.perf_counter()
      carry, adapting = jax.block_until_ready(adapt(keys[0], starts))
      middle = time.perf_counter()
      drawn = jax.tree.map(np.asarray, draw(keys[1], carry))
      seconds['adaptation'] = middle - begin
      seconds['sampling'] = time.perf_counter() - middle
    return peer_result(drawn, np.asarray(adapting), seconds)

  return sample_fn


def peer_result(drawn, adapting, seconds):
  """Returns the `Result` that a cell reads.

  Args:
    adapting: Gradients taken, [num_adaptation_steps, num_chains].
  """
  states = drawn['states']
  # As in TFP's NUTS, a step that moved counts as accepted. The state before the
  # first draw is not recorded.
  moved = np.any(states[1:] != states[:-1], axis=-1)
  trace = {
    'target_log_prob': drawn['target_log_prob'],
    'is_accepted': np.concatenate([np.ones_like(moved[:1]), moved]),
    'diverging': drawn['diverging'],
    'extra': {'leapfrogs_taken': drawn['leapfrogs_taken']},
  }
  return Result(
    states=states,
    trace=trace,
    adaptation_trace={'extra': {'leapfrogs_taken': adapting}},
    final_kernel_results=None,
    seconds=seconds,
  )


def _keys(jax, seed):
  """Returns keys for adapting and sampling, from two words."""
  first, second = (int(word) for word in np.asarray(seed))
  key = jax.random.fold_in(jax.random.PRNGKey(first), second)
  return jax.random.split(key)


def _compile(jax, algorithm, keys, starts):
  """Returns `adapt` and `draw` as compiled programs."""
  adapt = jax.jit(algorithm.adapt).lower(keys[0], starts)
  carry, _ = adapt.out_info
  draw = jax.jit(algorithm.draw).lower(keys[1], carry)
  return adapt.compile(), draw.compile()


@METHODS.register('blackjax_nuts')
class BlackjaxNuts(JaxPeer):
  """BlackJAX's NUTS, step size and mass matrix in growing windows."""

  mass_matrix: Literal['dense', 'diagonal'] = 'dense'

  package: ClassVar[str] = 'blackjax'
  least_adaptation: ClassVar[int] = 20

  def default_label(self):
    return f'BlackJAX NUTS ({self.mass_matrix})'

  def algorithm(self, log_prob, options, num_results):
    blackjax, jax = import_peer('blackjax'), import_peer('jax')
    warmup = blackjax.window_adaptation(
      blackjax.nuts,
      log_prob,
      is_mass_matrix_diagonal=self.mass_matrix == 'diagonal',
      adaptation_info_fn=lambda state, info, _: info.num_integration_steps,
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
class BlackjaxChees(JaxPeer):
  """BlackJAX's HMC with trajectory length by ChEES, unit mass."""

  package: ClassVar[str] = 'blackjax'

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
      return _scan(
        import_peer('jax').vmap(algorithm.step), key, states, num_results
      )

    return Algorithm(adapt, draw)


@METHODS.register('blackjax_meads')
class BlackjaxMeads(JaxPeer):
  """BlackJAX's generalized HMC tuned by MEADS, with one gradient a step."""

  package: ClassVar[str] = 'blackjax'

  def default_label(self):
    return 'BlackJAX MEADS'

  def algorithm(self, log_prob, options, num_results):
    blackjax, jnp = import_peer('blackjax'), import_peer('jax.numpy')
    warmup = blackjax.meads_adaptation(
      log_prob, options.num_chains, adaptation_info_fn=lambda *_: 1
    )

    def adapt(key, starts):
      adapted, taken = warmup.run(key, starts, options.num_adaptation_steps)
      taken = jnp.broadcast_to(taken[:, None], [len(taken), len(starts)])
      return adapted, taken

    def draw(key, adapted):
      algorithm = blackjax.ghmc(log_prob, **adapted.parameters)
      return _scan(
        import_peer('jax').vmap(algorithm.step), key, adapted.state, num_results
      )

    return Algorithm(adapt, draw)


def _chees_info(state, info, adaptation_state):
  """Returns the number of steps and the moving averages of ChEES."""
  del state
  return (
    info.num_integration_steps,
    adaptation_state.log_trajectory_length_moving_average,
    adaptation_state.log_step_size_moving_average,
  )


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


@METHODS.register('numpyro_nuts')
class NumpyroNuts(JaxPeer):
  """NumPyro's NUTS, step size and mass matrix in growing windows."""

  package: ClassVar[str] = 'numpyro'
  least_adaptation: ClassVar[int] = 20

  def default_label(self):
    return 'NumPyro NUTS (dense)'

  def algorithm(self, log_prob, options, num_results):
    infer, jax = import_peer('numpyro.infer'), import_peer('jax')
    num_adaptation_steps = options.num_adaptation_steps
    kernel = infer.NUTS(potential_fn=lambda x: -log_prob(x), dense_mass=True)

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
      del key  # A state has its own key.
      drawn = jax.lax.map(draw_one, states)
      return jax.tree.map(lambda part: part.swapaxes(0, 1), drawn)

    return Algorithm(adapt, draw)
