"""Chooses the sampler's structure by the Fisher divergence of held-out pairs.

A pair is a state x and its score, the gradient of the log density at x. A
candidate map or matrix f is fitted to half of the pairs. On the other half, y =
f^-1(x) has the score s. If y is standard normal, y + s = 0 for every pair. The
loss is a robust square of y + s, summed over coordinates.

In a conditional Gaussian, scales and means depend on driving coordinates. If it
is bent, means follow products of drivers too. In a path, the precision given
the drivers is tridiagonal.
"""

import functools
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive import preconditioners
from tfp_adaptive.fits import conditional
from tfp_adaptive.fits import matrix as matrix_lib
from tfp_adaptive.fits import pairs as pairs_lib
from tfp_adaptive.fits import search
from tfp_adaptive.linear import fisher_fit
from tfp_adaptive.posterior.structures import modes
from tfp_adaptive.transport import maps

_MOST_DENSE = 1000  # Most coordinates for a dense matrix.
_RANK = 10
_FEWEST_PAIRS = 32
DENSE = 'dense matrix'
_CONDITIONAL, BENT = 'conditional Gaussian', 'bent conditional Gaussian'
_PATH = 'conditional path'
# With fewer coordinates, a path gains nothing over a dense matrix, and its
# kernel takes 5 to 10 s to compile.
_SHORTEST_PATH = 16
# Structures that the host engine learns, always with a dense C.
_ON_HOST = (DENSE, _CONDITIONAL, BENT)
# A path is tried only if the median absolute rank correlation of adjacent
# scores exceeds this value and `_STANDARD_ERRORS` standard errors.
_LEAST_OF_NEIGHBOURS = 0.2
# Blocks of pairs alternate between fitting and holding out. Each chain with two
# pairs or more has an even number of blocks, because a chain stuck in a narrow
# region differs from all others. There are about `_NUM_BLOCKS` in all, or two
# for each chain.
_NUM_BLOCKS = 16
# A candidate must beat a simpler one by this many standard errors, by this
# share of the loss, and by this absolute gain.
_STANDARD_ERRORS = 4.0
_LEAST_SHARE = 0.1
_LEAST_GAIN = 0.1
# A map must also lower the loss of the worst coordinate by this share. Maps of
# hierarchies and of an epidemic, which pay, lower it by 0.26 to 0.9. Maps of a
# meta-analysis and of a GP classification lower it by 0.24 or less.
_LEAST_SHARE_OF_WORST = 0.25
# No map is tried if the best candidate has a mean loss below `_ENOUGH` in every
# coordinate. `_ENOUGH_OF_MAP` applies if the best candidate is a map, or if
# proposals diverge. Where matrices fail (centered hierarchies, a path with
# unknown noise), some coordinate has 0.75 or more. At a loss of 0.4, a map
# halves the cost of a draw, but only long runs pay for its search and its
# adaptation.
_ENOUGH, _ENOUGH_OF_MAP = 0.5, 0.05


ACCEPT_PROB = 0.8  # Target acceptance unless proposals diverge.


class Choice(NamedTuple):
  """The structure that was chosen."""

  name: str
  # An `interfaces.Preconditioner` or `interfaces.Transport`, or a
  # `modes.Exchange`.
  part: Any
  losses: dict = {}  # Name -> mean loss on held-out pairs.
  drivers: tuple = ()  # Indices of the driving coordinates of a map.
  # Exponent of each driver's term in the precision, per unit of the driver.
  exponents: tuple = ()
  target_accept_prob: float = ACCEPT_PROB

  @property
  def is_matrix(self):
    return isinstance(self.part, interfaces.Preconditioner)

  def words(self, coordinates):
    """Returns words on the choice for the report, with names of coordinates."""
    drivers = ', '.join(coordinates[i] for i in self.drivers)
    found = self.name + (f' driven by {drivers}' if drivers else '')
    if self.losses:
      losses = ', but '.join(
        f'{loss:.2g}' + ('' if name == self.name else f' with a {name}')
        for name, loss in reversed(self.losses.items())
        if name in (self.name, next(iter(self.losses)))
      )
      found += f'; held-out loss {losses}'
    return found


def is_on_host(name, event_size):
  """Returns whether the host engine learns a structure, by its name."""
  return name in _ON_HOST and event_size <= _MOST_DENSE


def default_matrix(event_size):
  """Returns (name, preconditioner) of the first warm-up."""
  if event_size <= _MOST_DENSE:
    return DENSE, preconditioners.cholesky()
  return 'diagonal matrix', preconditioners.diagonal()


def choose(states, scores, learned=None, diverge=False, chain=None):
  """Returns the `Choice` for pairs.

  Candidates are tried from simple to rich. A richer candidate must beat the
  best simpler one, see `_is_better`.

  States and scores are [n, d], chain after chain, each in the order of time.
  `chain` is the number of the chain of each pair, [n]; by default there is one
  chain. `learned` is the name and factor of the
  matrix that the chains learned from many more states. It replaces the fitted
  matrix of that name if its loss is smaller. `_ENOUGH_OF_MAP` explains
  `diverge`.
  """
  count = len(states)
  if count < _FEWEST_PAIRS:
    return Choice(*default_matrix(states.shape[1]))
  is_held_out = _is_held_out(np.zeros(count) if chain is None else chain)
  pairs = [
    np.asarray(rows[is_chosen], np.float64)
    for is_chosen in (~is_held_out, is_held_out)
    for rows in (states, scores)
  ]
  best, least, losses = None, None, {}
  for name, build in _candidates(pairs[1]).items():
    known = {}
    # A search for drivers takes long, so the bent map reuses the drivers that
    # were found for the unbent map.
    if name == BENT and best and best.drivers:
      known = dict(drivers=best.drivers, exponents=best.exponents)
    part = build(**known)
    is_map = not isinstance(part, interfaces.Preconditioner)
    if best and is_map and _is_enough(best, least, diverge):
      break
    if is_map:
      tried = [_tried_map(name, pairs, **known)]
    else:
      tried = [(_loss_of_fit(part, name, pairs), {})]
    if learned and name == learned[0]:
      tried.append((_loss_of_matrix(learned[1], *pairs), {}))
    tried = [
      (loss, found) for loss, found in tried if np.all(np.isfinite(loss))
    ]
    if not tried:
      continue
    loss, found = min(tried, key=lambda pair: np.mean(pair[0]))
    losses[name] = float(np.mean(np.sum(loss, axis=-1)))
    is_better = best is None or _is_better(loss, least)
    if best and best.is_matrix and is_map:
      is_better &= _has_better_worst(loss, least)
    if is_better:
      # The sampler gets these drivers, so that it does not search again.
      part = build(**found) if found else part
      best, least = Choice(name, part, losses, **found), loss
  return best or Choice(*default_matrix(states.shape[1]))


def _is_held_out(chain):
  """Returns which pairs are held out, [n] bool, from the chain of each pair."""
  _, first, count = np.unique(chain, return_index=True, return_counts=True)
  num_blocks = 2 * -(-_NUM_BLOCKS // (2 * len(count)))
  found = np.zeros(len(chain), bool)
  for number, (begin, size) in enumerate(zip(first, count)):
    place = np.arange(size)
    block = place * min(num_blocks, size) // size if size > 1 else number
    found[begin : begin + size] = block % 2 == 1
  return found


def _loss_of_fit(matrix, name, pairs):
  """Returns the loss of a matrix on held-out pairs, [n, d]; NaN without a fit.

  The pairs are states and scores to fit, then held-out states and scores.
  """
  states, scores, *_ = pairs
  try:
    if name == DENSE:
      return _loss_of_matrix(matrix_lib.fit(states, scores), *pairs)
    ones = tf.ones([], tf.float64)
    equal = np.full([len(states)], 1.0 / len(states))
    params = matrix.init(states.shape[1], ones.dtype, ones)
    params = fisher_fit.fit(matrix, params, states, scores, equal)
  except (np.linalg.LinAlgError, tf.errors.InvalidArgumentError):
    return np.nan  # There are too few pairs for a factor.
  operator = matrix.operator(params)

  def whitened(states, scores):
    y = operator.solve(states, adjoint_arg=True)
    s = operator.matmul(scores, adjoint=True, adjoint_arg=True)
    return tf.linalg.matrix_transpose(y + s).numpy()

  return _loss(whitened, *pairs)


def _tried_map(name, pairs, drivers=(), exponents=()):
  """Returns (loss of a map on held-out pairs, its drivers and exponents).

  The loss is [n, d], or NaN without a fit. Drivers and exponents are a dict of
  arguments for the builder of the map. Known drivers may be given.
  """
  states, scores, *held_out = pairs
  try:
    size, drivers = states.shape[1], np.array(drivers, int)
    form = dict(is_bent=name == BENT, is_path=name == _PATH)
    if not len(drivers):
      none = np.full([min(search.MOST_DRIVERS, size - 1)], -1)
      drivers, exponents = search.find(states, scores, none, **form)
    is_dense = size <= _MOST_DENSE  # As in `default_matrix`.
    fit = matrix_lib.fit if is_dense else matrix_lib.fit_diagonal
    params = conditional.fit(
      states, scores, drivers, exponents, **form, fit_factor=fit
    )
    loss = _loss(lambda *rows: sum(params.whitened(*rows)), *pairs)
  except np.linalg.LinAlgError:  # There are too few pairs for a factor.
    return np.nan, {}
  natural = params.natural
  scales = pairs_lib.pick(np.exp(natural.log_scale), natural.drivers, 1.0)
  # Exponents are per unit of the driver. The first term has no driver.
  exponents = np.diag(natural.exponents[1:]) / scales
  return loss, _as_arguments(natural.drivers, exponents)


def _loss_of_matrix(factor, states, scores, *held_out):
  """Returns the loss of a given matrix C on held-out pairs, [n, d]."""
  mean, pull = np.mean(states, axis=0), np.mean(scores, axis=0)
  if not np.all(np.isfinite(factor)):
    return np.nan

  def whitened(states, scores):
    return (
      np.linalg.solve(factor, (states - mean).T).T + (scores - pull) @ factor
    )

  return _loss(whitened, states, scores, *held_out)


def _loss(whitened, states, scores, *held_out):
  """Returns the loss on held-out pairs, [n, d].

  The function `whitened` takes states and scores and returns y + s. The mean of
  y + s over the fitted pairs, `states` and `scores`, is subtracted.
  """
  centre = np.mean(whitened(states, scores), axis=0)
  return pairs_lib.robust(whitened(*held_out) - centre)


def _is_enough(choice, loss, diverge):
  """Whether the best candidate so far is so good that no map is tried."""
  is_trusted = choice.is_matrix and not diverge
  enough = _ENOUGH if is_trusted else _ENOUGH_OF_MAP
  return np.max(np.mean(loss, axis=0)) < enough


def rebuilt(
  name,
  event_size,
  losses,
  drivers,
  exponents,
  target_accept_prob=ACCEPT_PROB,
  exchange=None,
):
  """Returns a `Choice` from its saved fields."""
  found = dict(drivers=tuple(drivers), exponents=tuple(exponents))
  if exchange:
    part = modes.Exchange(*exchange)
  else:
    part = _builders(event_size)[name](**(found if drivers else {}))
  return Choice(
    name, part, losses, **found, target_accept_prob=target_accept_prob
  )


def _candidates(scores):
  """Returns dict of name -> builder of the candidates, from simple to rich."""
  found = _builders(scores.shape[1])
  if _PATH in found and not _may_be_path(scores):
    del found[_PATH]
  return found


def _builders(event_size):
  """Returns dict of name -> builder of every structure."""
  name, matrix = default_matrix(event_size)
  found = {name: lambda: matrix}
  if event_size > _MOST_DENSE:
    found['low-rank matrix'] = lambda: preconditioners.low_rank(_RANK)
    found['tridiagonal matrix'] = preconditioners.tridiagonal
  if event_size > 1:
    plain = functools.partial(maps.conditional_gaussian, preconditioner=matrix)
    found[_CONDITIONAL] = plain
    found[BENT] = functools.partial(plain, bent=True)
    if event_size >= _SHORTEST_PATH:
      found[_PATH] = functools.partial(plain, structure='tridiagonal')
  return found


def _may_be_path(scores):
  """Whether most adjacent coordinates depend on each other, given all others.

  The covariance of the scores [n, d] of a Gaussian target is its precision.
  Ranks are used because the scale of scores may vary.
  """
  ranks = np.argsort(np.argsort(scores, axis=0), axis=0)
  ranks = (ranks - ranks.mean(axis=0)) / ranks.std(axis=0)
  # A constant coordinate has no ranks.
  ranks = np.where(np.ptp(scores, axis=0) > 0.0, ranks, 0.0)
  of_neighbours = np.mean(ranks[:, 1:] * ranks[:, :-1], axis=0)
  noise = _STANDARD_ERRORS / np.sqrt(len(scores))
  return np.median(np.abs(of_neighbours)) > max(noise, _LEAST_OF_NEIGHBOURS)


def _is_better(loss, than):
  """Whether a loss on held-out pairs is smaller than another, beyond noise.

  Draws are autocorrelated, so losses are averaged over blocks of adjacent
  pairs. The logarithms of these means are compared.
  """
  loss, than = np.sum(loss, axis=-1), np.sum(than, axis=-1)
  if np.mean(than) - np.mean(loss) < _LEAST_GAIN:
    return False
  now, before = (
    np.log([np.mean(block) for block in np.array_split(values, _NUM_BLOCKS)])
    for values in (loss, than)
  )
  ratio = now - before
  error = np.std(ratio, ddof=1) / np.sqrt(len(ratio))
  return np.mean(ratio) + _STANDARD_ERRORS * error < np.log(1.0 - _LEAST_SHARE)


def _has_better_worst(loss, than):
  """Whether the largest loss of a coordinate is clearly smaller.

  The slowest coordinate decides how fast chains mix. A map that does not help
  it mixes no faster than the matrix, although the sum of losses is smaller.
  """
  worst, before = (np.max(np.mean(x, axis=0)) for x in (loss, than))
  return worst < (1.0 - _LEAST_SHARE_OF_WORST) * before


def _as_arguments(drivers, exponents):
  """Returns a dict of a builder's arguments; the driver -1 means none."""
  is_driver = drivers >= 0
  if not np.any(is_driver):
    return {}
  return dict(
    drivers=tuple(map(int, drivers[is_driver])),
    exponents=tuple(map(float, exponents[is_driver])),
  )
