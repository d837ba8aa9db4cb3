"""A process that runs some cells; `engine.supervise` starts it."""

import json
import os
import signal
import sys
import threading
import time

from experiments.run import devices
from experiments.run import engine
from experiments.run import errors
from experiments.run.tasks import Cell


def main() -> int:
  """Runs the cells that standard input names; returns the exit code."""
  given = json.load(sys.stdin)
  _end_with(given['parent'])
  job = engine.Job(*given['job'])
  cells = [Cell(*cell) for cell in given['cells']]
  try:
    found = job.load()
    with devices.on_device(job.device):
      engine.run_cells(job, found, cells)
  except errors.USER_ERRORS as error:
    print(error, file=sys.stderr)
    return engine.REFUSED
  return 0


def _end_with(parent: int) -> None:
  """Ends this process and its children soon after the one that started it.

  A killed process cannot end the processes that it started.
  """

  def watch():
    while os.getppid() == parent:
      time.sleep(0.5)
    os.killpg(os.getpgrp(), signal.SIGKILL)

  threading.Thread(target=watch, daemon=True).start()


if __name__ == '__main__':
  sys.exit(main())
