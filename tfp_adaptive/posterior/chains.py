"""Chains of one learned kernel, which an engine runs block by block."""

import copy
import time

import numpy as np
import tensorflow as tf

from tfp_adaptive.linear.fisher_divergence import fisher_divergence_hamiltonian
from tfp_adaptive.posterior.engines import compiled
from tfp_adaptive.posterior.engines import handed_over
from tfp_adaptive.posterior.engines import host
from tfp_adaptive.posterior.engines import parts
from tfp_adaptive.posterior.judge import rounding
from tfp_adaptive.posterior.judge import verdict
from tfp_adaptive.posterior.starts import arrival
from tfp_adaptive.posterior.structures import modes
from tfp_adaptive.posterior.structures import structure
from tfp_adaptive.transport.hamiltonian import transport_adaptive_hamiltonian

# Each chain has at most `_BLOCK` draws in a block, and with `max_gradients` at
# most `_SHARE_OF_BUDGET` times this many draws. Blocks are small because budget
# and time are checked only between blocks.
_BLOCK, _SHARE_OF_BUDGET = 250, 0.02
_COUNTS = (  # Fields of `Chains` that are saved as JSON values.
  'num_draws',
  'block_size',
  'num_blocks',
  'thinning',
  'num_gradients',
  'gradients_per_adapting_step',
  'seconds',
  '_seconds_per_step',
  'cut_by',
  'error',
  'are_draws',
)


def kernel_of(
  target_log_prob_fn, choice, num_steps, dtype, keep_momentum=False
):
  """Returns the kernel that samples with a `structure.Choice`."""
  if modes.is_exchange(choice.part):
    return choice.part.kernel(target_log_prob_fn, num_steps, dtype)
  options = dict(
    target_accept_prob=choice.target_accept_prob, keep_momentum=keep_momentum
  )
  if choice.is_matrix:
    return fisher_divergence_hamiltonian(
      target_log_prob_fn, num_steps, preconditioner=choice.part, **options
    )
  return transport_adaptive_hamiltonian(
    target_log_prob_fn, num_steps, transport=choice.part, **options
  )


def engine_of(density, choice, starts, seed, num_steps, with_xla):
  """Returns the engine of a `structure.Choice`, which has taken no step yet.

  Starts are [chains, d], the seed is [2] int32, and `num_steps` steps adapt.
  """
  starts = np.asarray(starts, density.dtype.as_numpy_dtype)
  part = _part_on_host(choice, starts.shape[-1], num_steps)
  if part is None:
    kernel = kernel_of(density, choice, num_steps, density.dtype)
    return compiled.CompiledEngine(kernel, starts, seed, with_xla)
  density.use_xla(with_xla)
  return host.HostEngine(
    density,
    part,
    starts,
    np.asarray(seed),
    num_steps,
    choice.target_accept_prob,
  )


def _part_on_host(choice, size, num_steps):
  """Returns the map or matrix that NumPy learns; `None`: compile a kernel."""
  if not structure.is_on_host(choice.name, size):
    return None
  if choice.name == structure.DENSE:
    return parts.LearnedMatrix(size, num_steps)
  return parts.LearnedMap(
    size,
    num_steps,
    choice.drivers,
    choice.exponents,
    is_bent=choice.name == structure.BENT,
  )


def start(engine, choice, density, num_draws, run, max_gradients=float('inf')):
  """Returns `Chains` that have adapted and hold one block of draws.

  If time runs out before that, or after Ctrl-C, the chains hold their draws so
  far, or the last states of the warm-up, and `cut_by` gives the reason.

  `num_draws` is the number of draws of each chain to hold at the end, and `run`
  a `recorded.Options`. `max_gradients`, the budget of the whole run, bounds the
  size of blocks.
  """
  begin = time.monotonic()
  chains = Chains(engine, choice, density, num_draws)
  chains.block_size = block_size(num_draws, max_gradients)
  found = engine.start(chains.block_size, run)
  chains.cut_by = found.cut_by
  chains._seconds_per_step = found.seconds_per_step
  chains.add(found, engine)
  chains.gradients_per_adapting_step = engine.cost_of_adapting
  chains.num_gradients += _spent_adapting(engine)
  chains.seconds = time.monotonic() - begin
  return chains


def spent_by(engine):
  """Returns the gradients that each chain of an engine spent on its steps."""
  spent = _spent_adapting(engine)
  drawing = max(0, engine.num_steps - engine.num_adaptation_steps)
  return spent + (drawing and drawing * engine.cost / engine.steps_of_draw)


def _spent_adapting(engine):
  num_steps = min(engine.num_steps, engine.num_adaptation_steps)
  return num_steps * engine.cost_of_adapting if num_steps else 0.0


def restore(density, header, arrays, reports):
  """Returns the `Chains` whose `to_saved` returned a header and arrays."""
  arrays, trace = dict(arrays), {}
  draws = arrays.pop('draws')
  for name in header['trace']:
    trace[name] = arrays.pop(f'trace_{name}')
  choice = structure.rebuilt(**header['choice'], event_size=draws.shape[-1])
  engine = engine_of(
    density,
    choice,
    draws[-1],
    tf.constant(header['seed'], tf.int32),
    header['num_adaptation_steps'],
    header['jit_compile'],
  )
  if engine.name != header['engine']['name']:
    raise ValueError(
      f'The file was written by the engine {header["engine"]["name"]!r}, but '
      f'this call uses {engine.name!r}.'
    )
  engine.load(header['engine'], arrays, reports)
  chains = Chains(engine, choice, density, header['counts']['num_draws'])
  chains.recorded = [(draws, trace)]
  if header.get('noise'):
    chains.noise = rounding.Noise(*header['noise'])
  for name, value in header['counts'].items():
    setattr(chains, name, value)
  return chains


def block_size(num_draws, max_gradients=float('inf')):
  """Returns the number of draws of each chain in a block."""
  size = min(_BLOCK, -(-num_draws // 2), _SHARE_OF_BUDGET * max_gradients)
  return max(int(size), 1)


class Chains:
  """Draws of a frozen kernel at every `thinning`-th step, and their cost."""

  def __init__(self, engine, choice, density, num_draws):
    self.engine, self.choice, self.density = engine, choice, density
    self.num_draws = num_draws  # Draws of each chain to hold.
    # Most draws of each chain in a block. The size stays as `num_draws` grows,
    # because a program is compiled for one size.
    self.block_size = block_size(num_draws)
    self.num_blocks = 0  # The compiled engine makes seeds from this number.
    # List of (draws, trace), one for each block until they are joined.
    self.recorded = []
    self.thinning = 1
    self.num_gradients = 0.0  # For each chain so far, adaptation included.
    self.gradients_per_adapting_step = 0.0
    self.seconds = 0.0
    self._seconds_per_step = 0.0  # Measured in the last block.
    self.noise = None  # `rounding.Noise` of the log density, once measured.
    self.cut_by = ''  # What ended the adaptation or first block early.
    self.error = ''  # The error of the last block, if it failed.
    # Whether `recorded` has draws. A run without draws has one state per chain,
    # and the next block replaces these states.
    self.are_draws = True
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
  def steps_per_draw(self):
    """Steps of `kernel` from one draw to the next."""
    return self.thinning * self.engine.steps_of_draw

  @property
  def is_full(self):
    return self.num_recorded >= self.num_draws

  @property
  def num_kept(self):
    """Draws to show; the last block may have exceeded `num_draws`."""
    return min(self.num_recorded, self.num_draws)

  @property
  def diverge(self):
    """Whether so many proposals diverge that smaller steps pay.

    Steps that are tried again count by their first proposals, as long as the
    steps have not been made smaller.
    """
    trace = self.trace
    if 'least_first_ratio' in trace and not self._is_careful:
      trace = dict(trace, least_log_accept_ratio=trace['least_first_ratio'])
    return np.mean(verdict.is_diverging(trace)) > self.most_diverging

  @property
  def may_be_more_careful(self):
    """Whether smaller steps pay and were not tried yet."""
    return self.diverge and not self._is_careful

  @property
  def most_diverging(self):
    """Largest share of draws with diverging proposals; lower for smaller steps.

    One such draw alone is always allowed.
    """
    most = verdict.MOST_DIVERGING
    if self._is_careful:
      most = verdict.MOST_DIVERGING_OF_CAREFUL
    return max(most, 1.0 / (self.num_kept * self.draws.shape[1]))

  @property
  def _is_careful(self):
    """Whether the steps were made smaller because proposals diverged."""
    return self.choice.target_accept_prob > structure.ACCEPT_PROB

  @property
  def matrix(self):
    """(name, factor) of the learned matrix, or `None` for other structures."""
    factor = self.engine.factor
    return None if factor is None else (self.choice.name, factor)

  @property
  def state(self):
    """Last states of the chains, [chains, d], numpy."""
    return np.asarray(self.engine.states, self.density.dtype.as_numpy_dtype)

  @property
  def is_settled(self):
    """Whether the adaptation has ended."""
    return self.engine.is_settled

  @property
  def kernel(self):
    """The learned sampler, frozen, as a kernel."""
    engine, choice = self.engine, self.choice
    if engine.name == 'compiled':
      return engine.frozen
    count = engine.num_adaptation_steps
    kernel = kernel_of(
      self.density, choice, count, self.density.dtype, keep_momentum=True
    )
    return handed_over.kernel_of_host(engine, kernel)

  @property
  def failures(self):
    """Sentences on failures that the draws do not show."""
    found = []
    if not self.is_settled:
      found.append(
        f'{self.cut_by} ended the run in its warm-up: the result holds the '
        'last states of the warm-up, which are not draws of the posterior'
      )
    if self.error:
      found.append(
        f'a block of draws failed, and those before it were kept: {self.error}'
      )
    if modes.is_exchange(self.choice.part):
      found += modes.failures(self.engine.results)
    if self.is_noisy:
      found.append(self.noise.sentence(tf.as_dtype(self.draws.dtype)))
    return found

  @property
  def is_lost(self):
    """Which chains have not arrived at the posterior, [chains] bool."""
    return arrival.lost(self.trace['target_log_prob'], self.draws)

  @property
  def is_noisy(self):
    """Whether rounding noise of the log density exceeds `rounding.MOST`."""
    return self.noise is not None and self.noise.nats > rounding.MOST

  @property
  def is_too_noisy(self):
    """Whether rounding noise fails the verdict, however many draws follow.

    All chains must have arrived, because noise differs far from the posterior.
    """
    return self.is_noisy and not np.any(self.is_lost)

  @property
  def gradients_of_draws(self):
    """Gradients of each chain since the adaptation ended."""
    num_steps = self.engine.num_adaptation_steps
    return self.num_gradients - num_steps * self.gradients_per_adapting_step

  @property
  def cost_less_than_adapting(self):
    """Whether draws took fewer gradients than their adaptation."""
    return 2.0 * self.gradients_of_draws < self.num_gradients

  @property
  def gradients_of_a_block(self):
    """Gradients of each chain for a block with the present thinning."""
    return self.block_size * self.thinning * self.engine.cost

  @property
  def gradients_to_go_on(self):
    """Gradients of each chain for the next block, or to refill full chains."""
    if not self.is_full:
      return self.gradients_of_a_block
    missing = self.num_draws - self.num_recorded // 2
    num_blocks = -(-missing // self.block_size)
    steps = num_blocks * self.block_size * 2 * self.thinning
    return steps * self.engine.cost

  def to_saved(self):
    """Returns JSON values and arrays from which `restore` makes the chains."""
    of_engine, arrays = self.engine.to_saved()
    arrays['draws'] = self.draws
    arrays.update({f'trace_{k}': rows for k, rows in self.trace.items()})
    choice = self.choice._asdict()
    part = choice.pop('part')
    if modes.is_exchange(part):
      choice['exchange'] = part
    header = dict(
      choice=choice,
      engine=of_engine,
      num_adaptation_steps=self.engine.num_adaptation_steps,
      seed=[int(word) for word in self.engine.seed],
      jit_compile=self.engine.with_xla,
      trace=list(self.trace),
      noise=self.noise,
      counts={name: getattr(self, name) for name in _COUNTS},
    )
    return header, arrays

  def add(self, found, engine, is_apart=False):
    """Appends the `Recorded` draws of a block, with the engine after the block.

    If `is_apart`, the new draws are twice as far apart as the earlier draws,
    and every second earlier draw is removed.
    """
    trace = found.trace
    if modes.is_exchange(self.choice.part):
      trace = modes.without_own_proposals(trace)
    before, thinning = self.recorded if self.are_draws else [], self.thinning
    if is_apart:
      draws, kept = self._joined()
      last = {name: rows[1::2] for name, rows in kept.items()}
      if 'n_steps' in kept:  # The steps of the draws that are removed count.
        last['n_steps'] = last['n_steps'] + kept['n_steps'][:-1:2]
      before, thinning = [(draws[1::2], last)], 2 * thinning
    num_steps = len(found.states) * thinning if found.are_draws else 0
    # All fields change in one statement, so an interrupt never leaves half of
    # them changed. The list is new, because copies of these chains share the
    # old list.
    self.__dict__.update(
      recorded=[*before, (found.states, trace)],
      thinning=thinning,
      engine=engine,
      num_blocks=self.num_blocks + 1,
      num_gradients=self.num_gradients + num_steps * engine.cost,
      are_draws=found.are_draws,
      error='',
    )

  def fitting(self, seconds_left):
    """Returns how many draws of a block fit into the time, at least one."""
    thinning = self.thinning * (2 if self.is_full else 1)
    fitting = seconds_left / max(self._seconds_per_step * thinning, 1e-9)
    return int(np.clip(fitting, 1, self.block_size))

  def run_block(self, seconds_left=float('inf')):
    """Runs one block, or a smaller one if time is short.

    Full chains then lose every second earlier draw, and their thinning doubles.
    """
    begin = time.monotonic()
    is_full = self.is_full
    thinning = self.thinning * (2 if is_full else 1)
    num_draws = self.fitting(seconds_left)
    # The engine is copied, because copies of these chains share the old engine.
    engine = copy.copy(self.engine)
    found = engine.draw(num_draws, thinning, self.num_blocks)
    self.add(found, engine, is_full)
    seconds = time.monotonic() - begin
    self._seconds_per_step = seconds / (num_draws * thinning)
    self.seconds += seconds

  def extend_to(self, num_draws):
    """Raises the number of draws that the chains hold."""
    self.num_draws = num_draws

  def extend_by_a_block(self):
    """Lets full chains hold one more block with the present thinning."""
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
