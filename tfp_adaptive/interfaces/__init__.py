"""The contracts of all parts; read `shared.py` first.

`shared.py` has the contracts that all families share. `families.py` has the
contracts of single families, and the cost of a step.
"""

from tfp_adaptive.interfaces.families import Cost
from tfp_adaptive.interfaces.families import Covariance
from tfp_adaptive.interfaces.families import GaussianPrior
from tfp_adaptive.interfaces.families import Smoother
from tfp_adaptive.interfaces.families import Surrogate
from tfp_adaptive.interfaces.families import Transport
from tfp_adaptive.interfaces.shared import Criterion
from tfp_adaptive.interfaces.shared import Feedback
from tfp_adaptive.interfaces.shared import MapParams
from tfp_adaptive.interfaces.shared import Optimizer
from tfp_adaptive.interfaces.shared import Preconditioner
from tfp_adaptive.interfaces.shared import ProblemSize
from tfp_adaptive.interfaces.shared import Proposal
from tfp_adaptive.interfaces.shared import Replay
from tfp_adaptive.interfaces.shared import ScaleFactor
from tfp_adaptive.interfaces.shared import Slopes
from tfp_adaptive.interfaces.shared import Transition

__all__ = [
  'Cost',
  'Covariance',
  'Criterion',
  'Feedback',
  'GaussianPrior',
  'MapParams',
  'Optimizer',
  'Preconditioner',
  'ProblemSize',
  'Proposal',
  'Replay',
  'ScaleFactor',
  'Slopes',
  'Smoother',
  'Surrogate',
  'Transition',
  'Transport',
]
