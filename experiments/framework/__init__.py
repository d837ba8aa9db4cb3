"""What every run needs: configs, cells, storage, tables, figures."""
