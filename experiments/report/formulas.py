"""Formulas of pages, drawn as SVG when the site is built.

Pages have LaTeX between `$`, which GitHub and Jupyter show as formulas too.
Matplotlib draws the part of LaTeX that it knows, without LaTeX.
"""

import html
import re

from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath

# What `pymdownx.arithmatex` makes of `$...$` and of `$$...$$`.
_FORMULA = re.compile(
  r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', re.S
)
_FONT = FontProperties(math_fontfamily='cm')
_SIZE = 100.0  # Units of a path in 1 em.
_COMMANDS = {
  Path.MOVETO: 'M',
  Path.LINETO: 'L',
  Path.CURVE3: 'Q',
  Path.CURVE4: 'C',
}


def drawn(page: str) -> str:
  """Returns a page's HTML with its formulas as pictures."""
  return _FORMULA.sub(_drawn, page)


def _drawn(found):
  tag, formula = found[1], ' '.join(html.unescape(found[2]).split())
  if tag == 'div':
    formula = formula.replace(r'\frac', r'\dfrac')
  path = TextPath((0.0, 0.0), f'${formula}$', size=_SIZE, prop=_FONT)
  left, low, right, high = path.get_extents().padded(2.0).extents
  width, height = right - left, high - low
  steps = (_step(*step) for step in path.iter_segments(simplify=False))
  box = f'{left:.0f} {-high:.0f} {width:.0f} {height:.0f}'
  place = f'width:{width / _SIZE:.3f}em;vertical-align:{low / _SIZE:.3f}em'
  return (
    f'<{tag} class="formula">'
    f'<svg role="img" aria-label="{html.escape(formula)}" viewBox="{box}"'
    f' style="{place}"><path d="{"".join(steps)}"/></svg></{tag}>'
  )


def _step(points, code):
  if code == Path.CLOSEPOLY:  # Its point has no meaning.
    return 'Z'
  pairs = zip(points[::2], -points[1::2])  # SVG counts y downwards.
  return _COMMANDS[code] + ' '.join(f'{x:.1f} {y:.1f}' for x, y in pairs)
