"""Chains of one learned kernel: run on and on, their draws kept in bounds."""

import time
import warnings

import numpy as np
import tensorflow as tf

from tfp_adaptive import learned
from tfp_adaptive.core import random
from tfp_adaptive.core import stack
from tfp_adaptive.driver import sample as driver
from tfp_adaptive.linear.fisher_divergence import fisher_divergence_hamiltonian
from tfp_adaptive.posterior import arrival
from tfp_adaptive.posterior import modes
from tfp_adaptive.posterior import rounding
from tfp_adaptive.posterior import structure
from tfp_adaptive.posterior import verdict
from tfp_adaptive.transport.hamiltonian import transport_adaptive_hamiltonian

__all__ = ['Chains', 'block_size', 'kernel_of', 'restore', 'start']

# Draws of one compiled block, between two looks at the clock; and what they
# are of few gradients at most, so that few are left over.
_BLOCK, _SHARE_OF_BUDGET = 250, 0.02
_COUNTS = (  # Fields of `Chains` that say where they are.
  'num_draws',
  'block_size',
  'num_blocks',
  'thinning',
  'num_gradients',
  'gradients_per_adapting_step',
  'seconds',
  'cut_by',
  'is_settled',
  'error',
)


def kernel_of(target_log_prob_fn, choice, num_steps, dtype):
  """Returns the kernel of a choice, for states of a dtype."""
  if modes.is_exchange(choice.part):
    return choice.part.kernel(target_log_prob_fn, num_steps, dtype)
  accept = dict(target_accept_prob=choice.target_accept_prob)
  if hasattr(choice.part, 'operator'):
    return fisher_divergence_hamiltonian(
      target_log_prob_fn, num_steps, preconditioner=choice.part, **accept
    )
  return transport_adaptive_hamiltonian(
    target_log_prob_fn, num_steps, transport=choice.part, **accept
  )


def start(
  kernel,
  choice,
  starts,
  seed,
  num_draws,
  jit_compile,
  progress,
  checkpoint_dir=None,
  max_gradients=float('inf'),
  density=None,
  seconds_left=None,
):
  """Returns `Chains` that have adapted and hold one block of draws.

  Where the time ends before that, or after Ctrl-C, they hold what there is, at
  least the state that they reached, and `cut_by` says why.
  """
  begin = time.monotonic()
  chains = Chains(
    kernel, choice, seed, num_draws, jit_compile, progress, density
  )
  chains.block_size = block_size(num_draws, max_gradients)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', UserWarning)  # The verdict tells.
    try:
      result = driver.sample_until(
        seconds_left,
        kernel,
        starts,
        chains.block_size,
        seed=seed,
        block_size=chains.block_size,
        jit_compile=jit_compile,
        progress=progress,
        checkpoint_dir=checkpoint_dir,
      )
      num_steps = kernel.num_adaptation_steps
      seconds = result.seconds['sampling']
      chains._seconds_per_step = seconds / chains.block_size
    except driver.Cut as cut:
      result, num_steps = cut, min(cut.step, kernel.num_adaptation_steps)
      chains.cut_by = 'the user' if cut.by_user else '`max_seconds`'
      chains.is_settled = cut.step >= kernel.num_adaptation_steps
  chains.add(result)
  cost = learned.cost_per_step(kernel, True, result.final_kernel_results)
  chains.gradients_per_adapting_step = cost.gradient
  chains.num_gradients += num_steps * cost.gradient
  chains.seconds = time.monotonic() - begin
  return chains


def restore(density, header, arrays, progress):
  """Returns the `Chains` that gave a header and arrays.

  Args:
    density: `density.Density` of the same model.
    header: dict of `Chains.to_saved`, JSON values.
    arrays: dict of the same.
    progress: As of `start`.
  """
  arrays, trace = dict(arrays), {}
  draws = arrays.pop('draws')
  for name in header['trace']:
    trace[name] = arrays.pop(f'trace_{name}')
  choice = structure.rebuilt(**header['choice'], event_size=draws.shape[-1])
  kernel = kernel_of(
    density, choice, header['num_adaptation_steps'], draws.dtype
  )
  leaves = [tf.constant(arrays[str(i)]) for i in range(len(arrays))]
  chains = Chains(
    kernel,
    choice,
    tf.constant(header['seed'], tf.int32),
    header['counts']['num_draws'],
    header['jit_compile'],
    progress,
    density,
  )
  # Its state is one Tensor, the first; the structure is that of any results.
  chains.state = leaves[0]
  chains.results = tf.nest.pack_sequence_as(
    kernel.bootstrap_results(chains.state), leaves[1:], expand_composites=True
  )
  chains.recorded = [(draws, trace)]
  if header.get('noise'):
    chains.noise = rounding.Noise(*header['noise'])
  for name, value in header['counts'].items():
    setattr(chains, name, value)
  return chains


def block_size(num_draws, max_gradients=float('inf')):
  """Returns the draws of a block, half of what is wanted at most."""
  size = min(_BLOCK, -(-num_draws // 2), _SHARE_OF_BUDGET * max_gradients)
  return max(int(size), 1)


class Chains:
  """Draws of a frozen kernel, every `thinning`-th step, and what they cost.

  Attributes:
    choice: `structure.Choice` of the kernel.
    density: `density.Density` of the kernel.
    num_draws: Draws of each chain to hold.
    block_size: Draws of a compiled block.
    num_blocks: Blocks so far: each has noise of its own.
    recorded: List of (draws, trace): one for each block, until they are joined.
    thinning: Steps between two draws.
    num_gradients: Spent so far by each chain, adaptation included.
  """

  def __init__(
    self, kernel, choice, seed, num_draws, jit_compile, progress, density=None
  ):
    self.kernel, self.choice, self.density = kernel, choice, density
    self._seed = seed
    self._options = dict(jit_compile=jit_compile, progress=progress)
    self.num_draws = num_draws
    # For good: a program is compiled for its size.
    self.block_size = block_size(num_draws)
    self.num_blocks = 0
    self.recorded = []
    self.thinning = 1
    self.num_gradients = 0.0
    self.gradients_per_adapting_step = 0.0
    self.seconds = 0.0
    self._seconds_per_step = 0.0  # In the last block.
    self.noise = None  # `rounding.Noise` of its log density, once measured.
    # What cut off the first block, and whether the adaptation had ended.
    self.cut_by, self.is_settled = '', True
    self.error = ''  # What a block of draws failed with.
    # The density that the draws belong to, see `saved.record`.
    self.recorded_density = None

  @property
  def draws(self):
    """[n, chains, d], unconstrained."""
    return self._joined()[0]

  @property
  def trace(self):
    """dict of [n, chains]."""
    return self._joined()[1]

  @property
  def num_recorded(self):
    return sum(len(draws) for draws, _ in self.recorded)

  @property
  def is_full(self):
    return self.num_recorded >= self.num_draws

  @property
  def num_kept(self):
    """Draws to show: a last block may hold more than were asked for."""
    return min(self.num_recorded, self.num_draws)

  @property
  def diverge(self):
    """Whether more proposals could never be accepted than a verdict allows."""
    return np.mean(verdict.is_diverging(self.trace)) > self.most_diverging

  @property
  def most_diverging(self):
    """The share of proposals that may diverge, of smaller steps a lower one.

    One proposal alone is no share.
    """
    most = verdict.MOST_DIVERGING
    if self.choice.target_accept_prob > structure.ACCEPT_PROB:
      most = verdict.MOST_DIVERGING_OF_CAREFUL
    return max(most, 1.0 / self.trace['target_log_prob'].size)

  @property
  def matrix(self):
    """Name and params of what was learned, or `None` where it is a map."""
    if not hasattr(self.choice.part, 'operator'):
      return None
    params = stack.proposal_results(self.results).preconditioner_params
    return self.choice.name, params

  @property
  def failures(self):
    """Sentences on what no draw can tell."""
    found = []
    if not self.is_settled:
      found.append(
        f'{self.cut_by} ended the run in its warm-up: these are the states '
        'that it had reached, no draws of the posterior'
      )
    if self.error:
      found.append(
        f'a block of draws failed, and those before it were kept: {self.error}'
      )
    if modes.is_exchange(self.choice.part):
      found += modes.failures(self.results)
    if self.is_noisy:
      found.append(self.noise.sentence(tf.as_dtype(self.draws.dtype)))
    return found

  @property
  def is_lost(self):
    """Which chains have not arrived where the others are, [chains] bool."""
    return arrival.lost(self.trace['target_log_prob'], self.draws)

  @property
  def is_noisy(self):
    """Whether rounding of the log density decides acceptance."""
    return self.noise is not None and self.noise.nats > rounding.MOST

  @property
  def gradients_of_draws(self):
    """What each chain spent since it adapted."""
    of_adaptation = (
      self.kernel.num_adaptation_steps * self.gradients_per_adapting_step
    )
    return self.num_gradients - of_adaptation

  @property
  def gradients_of_a_block(self):
    """What each chain spends on a block of draws as far apart as these."""
    return self.block_size * self.thinning * self._gradients_per_step()

  @property
  def gradients_to_go_on(self):
    """What each chain spends at least to gain: a block; full, half anew."""
    if not self.is_full:
      return self.gradients_of_a_block
    missing = self.num_draws - self.num_recorded // 2
    num_blocks = -(-missing // self.block_size)
    steps = num_blocks * self.block_size * 2 * self.thinning
    return steps * self._gradients_per_step()

  def to_saved(self):
    """Returns JSON values and arrays to `restore` these chains from."""
    leaves = tf.nest.flatten((self.state, self.results), expand_composites=True)
    arrays = {str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays['draws'] = self.draws
    arrays.update({f'trace_{k}': rows for k, rows in self.trace.items()})
    choice = self.choice._asdict()
    part = choice.pop('part')
    if modes.is_exchange(part):
      choice['exchange'] = part
    header = dict(
      choice=choice,
      num_adaptation_steps=self.kernel.num_adaptation_steps,
      seed=[int(word) for word in self._seed],
      jit_compile=self._options['jit_compile'],
      trace=list(self.trace),
      noise=self.noise,
      counts={name: getattr(self, name) for name in _COUNTS},
    )
    return header, arrays

  def add(self, result, is_apart=False):
    """Appends what a block recorded.

    Args:
      result: `SampleResult` of the block.
      is_apart: Whether its draws are twice as far apart as those before, of
        which every second one goes then.
    """
    trace = {name: rows for name, rows in result.trace.items() if rows.ndim > 1}
    if modes.is_exchange(self.choice.part):
      trace = modes.without_own_proposals(trace)
    recorded, thinning = self.recorded, self.thinning
    if is_apart:
      draws, before = self._joined()
      before = {name: rows[1::2] for name, rows in before.items()}
      recorded, thinning = [(draws[1::2], before)], 2 * thinning
    results = result.final_kernel_results
    cost = learned.cost_per_step(self.kernel, False, results).gradient
    # All fields change in one statement, so an interrupt leaves no half. A
    # new list: a copy of these chains has its own.
    self.__dict__.update(
      recorded=[*recorded, (result.states, trace)],
      thinning=thinning,
      state=result.final_state,
      results=results,
      num_blocks=self.num_blocks + 1,
      num_gradients=self.num_gradients + len(result.states) * thinning * cost,
    )

  def fitting(self, seconds_left):
    """Returns how many draws of a block take no longer than there is time."""
    thinning = self.thinning * (2 if self.is_full else 1)
    fitting = seconds_left / max(self._seconds_per_step * thinning, 1e-9)
    return int(np.clip(fitting, 1, self.block_size))

  def run_block(self, seconds_left=float('inf')):
    """Runs one block, a smaller one if it would take longer than there is time.

    Full chains lose every second draw first.
    """
    begin = time.monotonic()
    is_full = self.is_full
    thinning = self.thinning * (2 if is_full else 1)
    num_draws = self.fitting(seconds_left)
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', UserWarning)
      result = driver.sample_more(
        self.kernel,
        self.state,
        self.results,
        num_draws,
        thinning - 1,
        # Negative: other numbers than those of the steps before.
        random.fold_in(self._seed, -self.num_blocks),
        self.block_size,
        **self._options,
      )
    self.add(result, is_full)
    seconds = time.monotonic() - begin
    self._seconds_per_step = seconds / (num_draws * thinning)
    self.seconds += seconds

  def extend_to(self, num_draws):
    """Lets the chains hold more draws from now on."""
    self.num_draws = num_draws

  def extend_by_a_block(self):
    """Lets full chains hold a block more, as far apart as these."""
    self.extend_to(self.num_recorded + self.block_size)

  def _joined(self):
    """Returns draws and trace of all blocks."""
    if len(self.recorded) > 1:
      draws = np.concatenate([draws for draws, _ in self.recorded])
      trace = {
        name: np.concatenate([trace[name] for _, trace in self.recorded])
        for name in self.recorded[0][1]
      }
      self.recorded = [(draws, trace)]
    return self.recorded[0]

  def _gradients_per_step(self):
    cost = learned.cost_per_step(self.kernel, False, self.results)
    return cost.gradient
