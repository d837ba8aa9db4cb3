"""Updates the README and the tutorials, which the site's build leaves alone.

python -m experiments.report readme              the table of the README
python -m experiments.report notebooks FILE...   runs tutorials, in place
python -m experiments.report page FILE           prints a page with its tables
"""

import pathlib
import sys

from experiments.report import notebooks
from experiments.report import readme
from experiments.report import templates

match sys.argv[1:]:
  case ['readme']:
    readme.write()
  case ['notebooks', *files] if files:
    for file in files:
      print(file, flush=True)
      notebooks.execute(file)
  case ['page', file]:
    print(templates.render(pathlib.Path(file).read_text(encoding='utf-8')))
  case _:
    sys.exit(__doc__)
