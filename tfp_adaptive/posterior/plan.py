"""Decides what a run of `sample_posterior` does next within its budget.

The functions are pure: they do not sample, read a clock or write a file. Every
number of gradients is that of one chain.
"""

from typing import NamedTuple

from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior.structures import modes
from tfp_adaptive.posterior.structures.structure import Choice

NUM_PAIRS = 2000  # Pairs of state and gradient for choosing a structure.
# Fewest and usual steps of the first adaptation. On 34 posteriors of
# posteriordb, runs with 1000 steps took twice the gradients, and only one had
# more effective draws per gradient. With 250 steps, two of twelve posteriors
# had about half as many effective draws per gradient.
_FEWEST_STEPS, _FIRST_STEPS = 50, 500
_FIRST_COST = 8.0  # Assumed gradients per step of a structure not yet tried.
# Round t of the phase 'improve' (t = 0, 1, ..., see `Place`) wants
# `_FIRST_STEPS` times `_GROWTH`^t steps. There are at most `_NUM_ATTEMPTS`
# rounds.
_GROWTH, _NUM_ATTEMPTS = 4, 3
# Largest share of the remaining budget for one adaptation. The second value
# applies when the structure stays and proposals diverge.
_LARGEST_SHARE, _LARGEST_SHARE_WHERE_DIVERGING = 0.3, 0.5
# Least assumed gradients per step of the first adaptation to smaller steps.
_CAREFUL_COST = 24.0
# Assumed gradients per draw of the block that follows an adaptation.
_COST_OF_A_DRAW = 4.0


class Place(NamedTuple):
  """What a run does next."""

  # Number of the round of adaptations after the first warm-up, from 0.
  attempt: int = 0
  # 'improve', which may adapt another structure or adapt for longer; 'sample';
  # or 'done'.
  phase: str = 'improve'
  # Whether another round may follow if the draws are far from enough.
  may_adapt: bool = True
  # Gradients that must be left for the adaptation of this round, if the budget
  # did not pay for it; else 0.
  lacking: float = 0.0
  # Whether all checks have passed, but chains draw on, because draws took less
  # than half of the gradients.
  runs_on: bool = False

  def sampling(self, lacking: float = 0.0) -> 'Place':
    """Returns the place after an adaptation that ended or was left out."""
    may_adapt = not lacking and self.attempt + 1 < _NUM_ATTEMPTS
    return Place(self.attempt, 'sample', may_adapt, lacking)

  def with_a_larger_budget(self) -> 'Place':
    """Returns the place at which a run resumes with a larger budget."""
    if self.lacking:
      return Place(self.attempt)
    return self._replace(may_adapt=self.attempt + 1 < _NUM_ATTEMPTS)


class Budget(NamedTuple):
  """Gradients of each chain, and the number of draws to make with them."""

  max_gradients: float
  spent: float
  num_draws: int
  num_chains: int

  def steps(self, num_steps: int, cost: float) -> int:
    """Returns how many of the wanted adapting steps the budget pays for.

    `cost` is the number of gradients of a step, divided by the share of the
    budget that an adaptation may take.
    """
    size = chains_lib.block_size(self.num_draws, self.max_gradients)
    left = self.max_gradients - self.spent - _COST_OF_A_DRAW * size
    return min(num_steps, int(left / cost))

  def needed(self, num_steps: int, cost: float) -> float:
    """Returns the gradients that must be left for `num_steps` steps."""
    size = chains_lib.block_size(self.num_draws)
    return _COST_OF_A_DRAW * size + num_steps * cost


class Evidence(NamedTuple):
  """What the draws show about the sampler that made them."""

  before: Choice
  asked: Choice  # The structure that these draws ask for.
  diverge: bool  # Whether too many proposals diverge, see `Chains.diverge`.
  careful_accept_prob: float  # Target acceptance if proposals diverge.
  cost: float  # Gradients of one adapting step of these chains.
  attempt: int  # Number of the round of adaptations, see `Place`.


class Adaptation(NamedTuple):
  """The next adaptation."""

  choice: Choice
  num_steps: int  # Steps that adapt, or 0 if the budget does not pay for them.
  # Gradients that must be left to afford the adaptation, or 0.
  lacking: float = 0.0


def look(budget: Budget) -> int:
  """Returns the number of steps of the first warm-up; refuses a tiny budget."""
  num_steps = budget.steps(_FIRST_STEPS, _FIRST_COST / _LARGEST_SHARE)
  if num_steps < _FEWEST_STEPS:
    raise ValueError(
      f'`max_gradients={budget.max_gradients:.0f}` is too few to adapt and to '
      'draw with. Write `max_gradients=10_000` or more.'
    )
  return num_steps


def may_look_again(budget: Budget, num_steps: int) -> bool:
  """Returns whether the budget pays for repeating the first warm-up."""
  cost = _FIRST_COST / _LARGEST_SHARE
  return budget.steps(num_steps, cost) >= num_steps


def adaptation(evidence: Evidence, budget: Budget) -> Adaptation | None:
  """Returns the next adaptation, or `None` if none is needed.

  Chains adapt to a new structure. With the same structure, they adapt again if
  proposals diverge, with a higher target acceptance. Without divergences they
  adapt again only in later rounds, for longer. If the budget does not pay for
  the adaptation, `num_steps` of the result is 0.
  """
  choice, cost = _aim(evidence)
  if choice is evidence.before:
    return None
  wanted = _GROWTH**evidence.attempt * _FIRST_STEPS
  least = _FIRST_STEPS if evidence.attempt else _FEWEST_STEPS
  num_steps = budget.steps(wanted, cost)
  if num_steps >= least:
    return Adaptation(choice, num_steps)
  again = NUM_PAIRS / budget.num_chains  # Gradients to choose a structure.
  return Adaptation(choice, 0, again + budget.needed(least, cost))


def _aim(evidence):
  """Returns (structure, gradients that must be left for each adapting step).

  The structure is `evidence.before` itself if no adaptation is needed.
  """
  before, choice, share = evidence.before, evidence.asked, _LARGEST_SHARE
  # Steps of chains that hardly moved were cheaper than those to come.
  cost = max(evidence.cost, _FIRST_COST)
  is_new = choice.name != before.name
  is_new |= set(choice.drivers) > set(before.drivers)
  if modes.is_exchange(choice.part):
    cost = choice.part.num_replicas
  elif is_new:
    pass  # The cost above applies.
  elif evidence.diverge:
    choice = choice._replace(target_accept_prob=evidence.careful_accept_prob)
    share = _LARGEST_SHARE_WHERE_DIVERGING
    if choice.target_accept_prob != before.target_accept_prob:
      cost = max(cost, _CAREFUL_COST)
  elif evidence.attempt:
    choice = choice._replace(target_accept_prob=before.target_accept_prob)
  else:
    choice = before
  return choice, cost / share


def after_sampling(
  place: Place, converged: bool, is_far: bool, spent: float, ended_by: str
) -> tuple[Place, str]:
  """Returns (place after sampling, reason why the run ended or '')."""
  if is_far and place.lacking and not ended_by:
    thousands = -(-(spent + place.lacking) // 1000)
    ended_by = f'`max_gradients`: to adapt again takes {thousands:.0f}_000 or '
    ended_by += 'more'
  if ended_by:
    return place, ended_by  # Another call resumes the run here.
  if is_far and place.may_adapt:
    return Place(place.attempt + 1), ''
  lacking = 0.0 if converged else place.lacking
  return place._replace(phase='done', lacking=lacking), ''


def draws_are_few(
  of_draws: float, spent: float, more: float, is_in_time: bool, most: float
) -> bool:
  """Returns whether draws took under half of the gradients so far.

  It is false if time (`is_in_time`) or the budget `most` do not allow the next
  draws, which take `more` gradients. `of_draws` are the gradients since the
  chains adapted, and `spent` all gradients. All checks can pass before a chain
  has visited rare regions, such as a far tail, often enough.
  """
  return is_in_time and spent + more <= most and 2.0 * of_draws < spent
