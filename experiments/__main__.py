"""Entry point of `python -m experiments`."""

from experiments.framework.cli import app

if __name__ == '__main__':
  app(prog_name='python -m experiments')
