"""Delayed rejection: a rejected step is tried again with a smaller step size.

Step sizes fit the bulk of a posterior. In a narrow region every proposal of
this size is rejected, so that chains neither enter nor leave the region. A step
that is rejected with a small acceptance probability is therefore tried again,
from the same place and with the same momentum:

    (x1, v1) <- L leapfrog steps of size e,        r = min(1, pi1 / pi)
    if rejected: go on with probability (1 - r)^30, else end
    (x2, v2) <- 3 L leapfrog steps of size e / 3
    (x3, v3) <- L leapfrog steps of size e from (x2, -v2), s = min(1, pi3 / pi2)
    accept (x2, v2) with probability min(1, pi2 / pi ((1 - s) / (1 - r))^31)

Here pi is the joint density of place and momentum. The third trajectory shows
whether a step from (x2, -v2) would be tried again as well. The power 30 means
that a step is tried again if log(pi1 / pi) is below about -4. A smaller power
would try more steps again, and each costs up to 4 L leapfrog steps more. With a
larger power, fewer steps across the edge of a narrow region are accepted,
because a step must be tried again in both directions.

The second trajectory lasts as long as the first. With L steps it would cost
less, but chains would move more slowly along a narrow region.

The decision about the first proposal is |u| < r with the kept number u, see
`linear.kept_momentum`. Given its rejection, |u| is uniform on (r, 1). The chain
moves to (x2, v2) with the number that has the same sign and the same relative
place on (s, 1). A step that accepts no proposal negates the momentum.

In the draws right after the first warm-up, only a tenth of the steps may be
tried again. Chance alone decides which.

With n > 8 chains, a step is tried again with 8 / n of this probability, so that
the cost does not grow with n. A chain whose density is zero never tries.

Sources: Tierney and Mira (1999), Some adaptive Monte Carlo methods for Bayesian
inference, Statistics in Medicine 18; Modi, Barnett and Carpenter (2024),
Delayed rejection Hamiltonian Monte Carlo for sampling multiscale distributions,
https://doi.org/10.1214/23-BA1360. The chance (1 - r)^30, and u, are ours.
"""

from typing import Any
from typing import NamedTuple

# The second trajectory has this many times as many leapfrog steps as the first,
# each smaller by this factor.
DIVISOR = 3
NEVER = 2.0  # A random number with which no step is tried again.
_POWER = 30.0
_FEW_CHAINS = 8  # With more chains, steps are tried again less often.
_MOST_LOG_RATIO = 80.0  # Its exponential is finite in float32.


class End(NamedTuple):
  """The end of a trajectory."""

  point: Any  # `program.Point`.
  ratio: Any  # Log acceptance ratio, [chains].


def are_tried(start, first, numbers, library):
  """Returns which chains try their step again, [chains] bool.

  Args:
    start: The `program.Point` at the start of the step.
    first: The `End` of the first proposal.
    numbers: Random numbers in (0, 1), or `NEVER`, [chains].
    library: `tf` or `np`, whose functions are used.
  """
  share = _accept_prob(first.ratio, library)
  is_rejected = abs(start.uniforms) >= share
  # It is false if the density at the start is zero.
  is_rejected &= start.values - start.values == 0.0
  return is_rejected & (numbers < _chance_to_try(first, share))


def may_be_accepted(start, first, second, numbers, library):
  """Returns which chains accept their second proposal if s is 0, [chains] bool.

  For other chains the third trajectory is not needed. `second` is the `End` of
  the second proposal.
  """
  chance = _chance(first, second, 0.0, library)
  return are_tried(start, first, numbers, library) & (numbers < chance)


def decided(start, first, second, third_ratio, numbers, library):
  """Returns (proposal, whether it is accepted), an `End` and [chains] bool.

  The proposal is the last that the step tried, with the number u that follows
  its acceptance. `third_ratio` is the log ratio of the third trajectory,
  [chains]. What was not needed may have any value.
  """
  share = _accept_prob(first.ratio, library)
  end = first.point._replace(
    uniforms=start.uniforms * library.exp(-first.ratio)
  )
  is_tried = are_tried(start, first, numbers, library)
  back = _accept_prob(third_ratio, library)
  is_second = is_tried & (numbers < _chance(first, second, back, library))
  place = (abs(start.uniforms) - share) / (1.0 - share)
  uniforms = library.sign(start.uniforms) * (back + place * (1.0 - back))
  shorter = second.point._replace(uniforms=uniforms)
  proposal = End(
    chosen(is_tried, shorter, end, library),
    library.where(is_tried, second.ratio, first.ratio),
  )
  return proposal, is_second | (abs(start.uniforms) < share)


def chosen(is_first, one, other, library):
  """Returns a `program.Point` with each chain from one of two points."""
  rows = is_first[:, None]
  return type(one)(
    *(
      library.where(rows if len(x.shape) > 1 else is_first, x, y)
      for x, y in zip(one, other)
    )
  )


def _accept_prob(ratio, library):
  return library.exp(library.minimum(ratio, 0.0))


def _chance(first, second, back, library):
  """Returns the probability to try again and to accept, given `back`, s."""
  rest = 1.0 - _accept_prob(first.ratio, library)
  gain = library.exp(library.minimum(second.ratio, _MOST_LOG_RATIO))
  gain = gain * ((1.0 - back) / rest) ** (_POWER + 1.0)
  return _chance_to_try(first, 1.0 - rest) * library.minimum(gain, 1.0)


def _chance_to_try(first, share):
  few = min(1.0, _FEW_CHAINS / first.ratio.shape[0])
  return few * (1.0 - share) ** _POWER
